// What only a GPU of compute capability 9.0 does (PTX of sm_90a): clusters of thread blocks that
// see each other's shared memory, mbarriers, bulk copies, wgmma. Thin wrappers with one meaning on
// both sides: PTX for nvcc, calls of tests/gpu/emulator for the host compiler. Kernels that use
// them have their bodies under EVALRUN_HOPPER_CODE: nvcc reads them for sm_90a alone.
//
// Names and rules: PTX ISA, "mbarrier", "cp.async.bulk", "Asynchronous Warpgroup Level Matrix
// Instructions". None of it has run on a GPU yet.
#pragma once
#include "engine/cuda/kernels/device_code.h"

#if defined(EVALRUN_CUDA_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define EVALRUN_HOPPER_CODE 1
#else
#define EVALRUN_HOPPER_CODE 0
#endif

#if EVALRUN_HOPPER_CODE
namespace evalrun::engine::cuda {

constexpr int kWarpgroup = 4 * kWarp;  // what does a wgmma together

#if defined(EVALRUN_CUDA_EMULATED)

__device__ __forceinline__ int cluster_rank() { return emulator::cluster_rank(); }
__device__ __forceinline__ void cluster_arrive() { emulator::cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { emulator::cluster_wait(); }
__device__ __forceinline__ void init_mbarrier(uint64_t* barrier, unsigned arrivals) {
  emulator::mbarrier_init(barrier, arrivals);
}
__device__ __forceinline__ void fence_mbarriers() {}
__device__ __forceinline__ void arrive(uint64_t* barrier) { emulator::mbarrier_arrive(barrier); }
__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, unsigned bytes) {
  emulator::mbarrier_arrive(barrier, bytes);
}
__device__ __forceinline__ void arrive_at(uint64_t* barrier, int rank) {
  emulator::mbarrier_arrive(static_cast<uint64_t*>(emulator::of_cluster(barrier, rank)));
}
__device__ __forceinline__ void wait_mbarrier(uint64_t* barrier, unsigned parity) {
  emulator::mbarrier_wait(barrier, parity);
}
__device__ __forceinline__ void wait_cluster_mbarrier(uint64_t* barrier, unsigned parity) {
  emulator::mbarrier_wait(barrier, parity);
}
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, unsigned bytes,
                                          uint64_t* barrier) {
  emulator::bulk_copy(shared, global, bytes, barrier);
}
__device__ __forceinline__ void store_at(float2* shared, int rank, float x, float y) {
  const float value[2] = {x, y};
  emulator::cluster_store(emulator::of_cluster(shared, rank), value, sizeof value);
}
__device__ __forceinline__ void hand_over_shared() { emulator::fence_proxy_async(); }
__device__ __forceinline__ uint64_t matrix_place(const void* shared) {
  return emulator::shared_offset(shared);
}
__device__ __forceinline__ void wgmma_fence() { emulator::wgmma_fence(); }
__device__ __forceinline__ void wgmma_commit() { emulator::wgmma_commit(); }
template <int kButLast>
__device__ __forceinline__ void wgmma_wait() {
  emulator::wgmma_wait(kButLast);
}
template <int NT>
__device__ __forceinline__ void hold(float (&)[NT][4]) {}
template <int NT>
__device__ __forceinline__ void wgmma_bf16(float (&d)[NT][4], const uint32_t (&a)[4], uint64_t b,
                                           bool add) {
  emulator::wgmma_bf16(&d[0][0], 4 * NT, a, b, add);
}

#else

__device__ __forceinline__ unsigned shared_place(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
// The same place in another thread block of the cluster.
__device__ __forceinline__ unsigned place_at(const void* p, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_place(p)), "r"(rank));
  return there;
}

// %cluster_ctarank
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The barrier of all threads of the cluster, in two halves. What was done before the first is there
// after the second.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A phase ends when so many have arrived, and all bytes that were expected in it have come.
__device__ __forceinline__ void init_mbarrier(uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(barrier)), "r"(arrivals)
               : "memory");
}
// By the thread that initialised them, before the cluster's barrier.
__device__ __forceinline__ void fence_mbarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_place(barrier))
               : "memory");
}
__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_place(barrier)),
               "r"(bytes)
               : "memory");
}
// Of another thread block of the cluster, or of this one.
__device__ __forceinline__ void arrive_at(uint64_t* barrier, int rank) {
  asm volatile(
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(place_at(barrier, rank))
      : "memory");
}
// An instruction is a literal, so this cannot be a parameter of a function.
#define EVALRUN_WAIT_MBARRIER(scope)            \
  asm volatile(                                 \
      "{\n"                                     \
      ".reg .pred over;\n"                      \
      "AGAIN:\n"                                \
      "mbarrier.try_wait.parity.acquire." scope \
      ".shared::cta.b64 over, [%0], %1;\n"      \
      "@over bra DONE;\n"                       \
      "bra AGAIN;\n"                            \
      "DONE:\n"                                 \
      "}" ::"r"(shared_place(barrier)),         \
      "r"(parity)                               \
      : "memory")
// Until the phase of this parity is over; the first phase has parity 0.
__device__ __forceinline__ void wait_mbarrier(uint64_t* barrier, unsigned parity) {
  EVALRUN_WAIT_MBARRIER("cta");
}
// Of arrivals of other thread blocks.
__device__ __forceinline__ void wait_cluster_mbarrier(uint64_t* barrier, unsigned parity) {
  EVALRUN_WAIT_MBARRIER("cluster");
}
#undef EVALRUN_WAIT_MBARRIER

// `bytes`, a multiple of 16 as both places are, into this block's shared memory; the mbarrier is
// told when they are there.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, unsigned bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_place(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_place(barrier))
      : "memory");
}
// To the same place in another thread block.
__device__ __forceinline__ void store_at(float2* shared, int rank, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(place_at(shared, rank)), "f"(x),
               "f"(y)
               : "memory");
}
// What this thread wrote to shared memory, wgmma may read after the next barrier.
__device__ __forceinline__ void hand_over_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ uint64_t matrix_place(const void* shared) {
  return shared_place(shared);
}

// Before the first wgmma of a group: registers are as the thread left them.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// For all groups but the last few.
template <int kButLast>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kButLast) : "memory");
}
// Sums are not touched before this place: the compiler does not know that they come later.
template <int NT>
__device__ __forceinline__ void hold(float (&d)[NT][4]) {
#pragma unroll
  for (int j = 0; j < NT; ++j)
    asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
}

// D (+)= A B of a warpgroup: A [64, 16] bfloat16 in registers, of each warp 16 rows as of
// mma_bf16(); B [8 NT, 16] in shared memory, one row a column of D; D [64, 8 NT] float32, d[j] of
// columns 8 j ... as of mma_bf16(). Without `add` from zero. Goes on while the thread does:
// registers and shared memory are not to be touched before wgmma_wait().
#define EVALRUN_SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define EVALRUN_WGMMA(columns, sums, a0, a1, a2, a3, place, added)                               \
  "{\n.reg .pred more;\nsetp.ne.b32 more, " added                                                \
  ", 0;\n"                                                                                       \
  "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" sums "}, {" a0 "," a1 "," a2 \
  "," a3 "}, " place ", more, 1, 1, 0;\n}"
#define EVALRUN_FACTORS \
  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))
template <int NT>
__device__ __forceinline__ void wgmma_bf16(float (&d)[NT][4], const uint32_t (&a)[4], uint64_t b,
                                           bool add) {
  static_assert(NT == 1 || NT == 2 || NT == 4 || NT == 8);
  if constexpr (NT == 1)
    asm volatile(EVALRUN_WGMMA("8", "%0,%1,%2,%3", "%4", "%5", "%6", "%7", "%8", "%9")
                 : EVALRUN_SUMS(0)
                 : EVALRUN_FACTORS);
  else if constexpr (NT == 2)
    asm volatile(
        EVALRUN_WGMMA("16", "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10", "%11", "%12", "%13")
        : EVALRUN_SUMS(0), EVALRUN_SUMS(1)
        : EVALRUN_FACTORS);
  else if constexpr (NT == 4)
    asm volatile(EVALRUN_WGMMA("32", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16",
                               "%17", "%18", "%19", "%20", "%21")
                 : EVALRUN_SUMS(0), EVALRUN_SUMS(1), EVALRUN_SUMS(2), EVALRUN_SUMS(3)
                 : EVALRUN_FACTORS);
  else
    asm volatile(EVALRUN_WGMMA("64",
                               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"
                               "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31",
                               "%32", "%33", "%34", "%35", "%36", "%37")
                 : EVALRUN_SUMS(0), EVALRUN_SUMS(1), EVALRUN_SUMS(2), EVALRUN_SUMS(3),
                   EVALRUN_SUMS(4), EVALRUN_SUMS(5), EVALRUN_SUMS(6), EVALRUN_SUMS(7)
                 : EVALRUN_FACTORS);
}
#undef EVALRUN_SUMS
#undef EVALRUN_WGMMA
#undef EVALRUN_FACTORS

#endif

// [8 columns][16 bytes] pieces of eight inputs without swizzle: `leading` bytes to the next eight
// inputs, `stride` to the next eight columns. (PTX ISA, "Matrix Descriptor Format", K-major.)
__device__ __forceinline__ uint64_t matrix_descriptor(const void* shared, int leading, int stride) {
  const auto field = [](uint64_t bytes) { return (bytes & 0x3ffff) >> 4; };
  return field(matrix_place(shared)) | field(static_cast<uint64_t>(leading)) << 16 |
         field(static_cast<uint64_t>(stride)) << 32;
}

}  // namespace evalrun::engine::cuda
#endif
