// What every kernel file starts from: the runtime, arithmetic that is the same on both sides, and
// the few things the GPU does that C++ has no word for. Compiled by nvcc, and by the host compiler
// against tests/gpu/emulator, where the same kernels run on the CPU.
#pragma once
#define EVALRUN_DEVICE __host__ __device__
#include <cuda_runtime.h>

#include <cstdint>

#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/fp8.h"

namespace evalrun::engine::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// Pointers that come out of memory, or several of which one is taken, say nothing of the memory
// they point to; this does.
template <typename T>
__device__ __forceinline__ T* in_global(T* p) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

EVALRUN_DEVICE inline float bits_to_float(uint32_t bits) { return std::bit_cast<float>(bits); }
EVALRUN_DEVICE inline float bf16_to_float(uint16_t x) {
  return bits_to_float(static_cast<uint32_t>(x) << 16);
}
// Ties to even; every NaN becomes 0x7fff, as cvt.rn.bf16.f32 has it.
EVALRUN_DEVICE inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (x != x) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
// Lower half of a register = lower index, as in every fragment.
EVALRUN_DEVICE inline uint32_t pack_bf16(float low, float high) {
  return static_cast<uint32_t>(float_to_bf16(low)) | static_cast<uint32_t>(float_to_bf16(high))
                                                         << 16;
}
EVALRUN_DEVICE inline float low_bf16(uint32_t pair) { return bits_to_float(pair << 16); }
EVALRUN_DEVICE inline float high_bf16(uint32_t pair) { return bits_to_float(pair & 0xffff0000u); }

// IEEE half, the scales of weights: finite, or zero.
EVALRUN_DEVICE inline float half_bits_to_float(uint16_t h) {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
#else
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(h & 0x7fffu) << 13;
  // 2^112 moves the exponent's bias from 15 to 127; exact for denormals too.
  return bits_to_float(std::bit_cast<uint32_t>(bits_to_float(rest) * 0x1p112f) | sign);
#endif
}

// Byte i of the result is byte (selector >> 4 i) & 7 of the eight in low, high.
EVALRUN_DEVICE inline uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#else
  const uint64_t all = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<uint32_t>(all >> (8 * (selector >> (4 * i) & 7u)) & 0xffu) << (8 * i);
  return result;
#endif
}

// Pairs of 4-bit codes as pairs of bfloat16: nibble i of a word is code 2i for i < 4 and code
// 2 (i - 4) + 1 above. 0x4300 is 128, whose last bit counts 1, so the sum is exact, and so is the
// difference.
EVALRUN_DEVICE inline uint32_t q4_pair(uint32_t word, int i) {
#if defined(__CUDA_ARCH__)
  uint32_t biased, pair;  // (word & mask) | 128; biased * 1 + (-128)
  asm("lop3.b32 %0, %1, %2, %3, 0xea;"
      : "=r"(biased)
      : "r"(word >> (4 * i)), "r"(0x000f000fu), "r"(0x43004300u));
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(pair)
      : "r"(biased), "r"(0x3f803f80u), "r"(0xc300c300u));
  return pair;
#else
  const uint32_t biased = (word >> (4 * i) & 0x000f000fu) | 0x43004300u;
  return pack_bf16(low_bf16(biased) - 128.0f, high_bf16(biased) - 128.0f);
#endif
}
// Bytes w + 128 number 2i and 2i + 1 of a word as pairs of bfloat16, exact.
EVALRUN_DEVICE inline uint32_t int8_pair(uint32_t word, int i) {
  // 2^23 + byte, less 2^23 + 128; the upper halves hold all of it.
  const uint32_t at = 0x7540u + 2u * static_cast<uint32_t>(i);
  const float low = bits_to_float(pick_bytes(word, 0x4b000000u, at)) - 8388736.0f;
  const float high = bits_to_float(pick_bytes(word, 0x4b000000u, at + 1)) - 8388736.0f;
  return pick_bytes(std::bit_cast<uint32_t>(low), std::bit_cast<uint32_t>(high), 0x7632u);
}
// E4M3 numbers (cpu::Fp8) 2i and 2i + 1 of a word as pairs of bfloat16, exact.
EVALRUN_DEVICE inline uint32_t fp8_pair(uint32_t word, int i) {
  // Each above an empty byte; then exponent and mantissa where bfloat16 has them, whose bias is 120
  // more. Below the smallest normal number both formats count without a leading one.
  const uint32_t above = pick_bytes(word, 0u, i == 0 ? 0x1404u : 0x3424u);
  const uint32_t small = (above & 0x80008000u) | (above >> 4 & 0x07f007f0u);
#if defined(__CUDA_ARCH__)
  uint32_t pair;  // small * 2^120 + -0, and instructions of bfloat16 keep numbers that small
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(pair)
      : "r"(small), "r"(0x7b807b80u), "r"(0x80008000u));
  return pair;
#else
  return pack_bf16(low_bf16(small) * 0x1p120f, high_bf16(small) * 0x1p120f);
#endif
}

// Codes of int8 as the device has them, plus 128; a type of its own, as cpu::Fp8 is.
enum class Int8Code : unsigned char {};
EVALRUN_DEVICE inline float number_of(Int8Code code) {
  return static_cast<float>(static_cast<int>(code) - 128);
}
EVALRUN_DEVICE inline float number_of(cpu::Fp8 code) { return cpu::fp8_value(code); }

#if defined(__CUDACC__)
// The launch's dynamic shared memory; sized by the host, 16-byte aligned.
__device__ __forceinline__ unsigned char* evalrun_shared_memory() {
  extern __shared__ __align__(16) unsigned char evalrun_shared_bytes[];
  return evalrun_shared_bytes;
}
#endif

// D += A B of one warp: A [16, 16] row-major, B [16, 8], bfloat16; D [16, 8], float32. With
// g = lane / 4 and t = lane % 4, register by register: A holds rows g, g + 8, g, g + 8 at inputs
// 2t, 2t, 2t + 8, 2t + 8 (and one more); B inputs 2t, 2t + 8 of column g; D rows g, g, g + 8, g + 8
// at columns 2t, 2t + 1, 2t, 2t + 1. (PTX ISA, mma.m16n8k16.)
#if defined(__CUDACC__) || defined(EVALRUN_CUDA_EMULATED)
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(EVALRUN_CUDA_EMULATED)
  const uint32_t b[2] = {b0, b1};
  emulator::mma_m16n8k16_bf16(d, a, b);
#else
  (void)d, (void)a, (void)b0, (void)b1;
#endif
}

// Transposes an 8 x 8 matrix of 16-bit values that a warp holds: with g = lane / 4 and t = lane % 4
// a lane gives row g at columns 2t and 2t + 1, and gets rows 2t and 2t + 1 at column g, as B of
// mma_bf16 has them. Lower half first. (PTX ISA, movmatrix.)
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t word) {
#if defined(__CUDA_ARCH__)
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
#elif defined(EVALRUN_CUDA_EMULATED)
  return emulator::movmatrix_m8n8_trans_b16(word);
#else
  return word;
#endif
}

// First of all in every kernel, by every thread. A launch may begin while the kernel before it
// still runs (launch() in engine/cuda/runtime/check.h; sm_90 and later), so that its thread blocks
// are in place, and their first weights under way, when that one ends. Before this call a kernel
// reads nothing that a kernel has written and writes nothing at all; weights do not change after
// they are packed. After it, everything of the kernels before is done and seen. The next kernel may
// begin from here on, and does what it can before it waits in its turn.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#elif defined(EVALRUN_CUDA_EMULATED)
  emulator::wait_for_previous();
#endif
}

// Weights are read once a step: past the first-level cache, which the inputs need.
__device__ __forceinline__ uint4 load_once(const uint4* p) {
#if defined(__CUDA_ARCH__)
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
#elif defined(EVALRUN_CUDA_EMULATED)
  uint4 v;
  emulator::read_only_load(&v, p, sizeof v);
  return v;
#else
  return *p;
#endif
}
__device__ __forceinline__ uint2 load_once(const uint2* p) {
#if defined(__CUDA_ARCH__)
  uint2 v;
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
#elif defined(EVALRUN_CUDA_EMULATED)
  uint2 v;
  emulator::read_only_load(&v, p, sizeof v);
  return v;
#else
  return *p;
#endif
}

// Copies of 4, 8 or 16 bytes into shared memory that go on while the thread does (cp.async, past
// the first-level cache where hardware can); zeros when not `given`. A thread commits its copies in
// groups and waits for all groups but its last few. Other threads see them after a barrier, too.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool given = true) {
#if defined(__CUDA_ARCH__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = given ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(bytes)
                 : "memory");
#elif defined(EVALRUN_CUDA_EMULATED)
  emulator::copy_async(shared, global, kBytes, given ? kBytes : 0);
#else
  (void)shared, (void)global, (void)given;
#endif
}
__device__ __forceinline__ void commit_copies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(EVALRUN_CUDA_EMULATED)
  emulator::commit_copies();
#endif
}
template <int kButLast>
__device__ __forceinline__ void wait_copies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kButLast) : "memory");
#elif defined(EVALRUN_CUDA_EMULATED)
  emulator::wait_copies(kButLast);
#endif
}
#endif

}  // namespace evalrun::engine::cuda
