// One mma.m16n8k16 of whole matrices, for tests of what it computes on the emulated device.
#pragma once
#include <cstdint>
#include <cstring>

#include "tests/gpu/emulator/include/emulator.h"

namespace emulator::testing {

// Element i of a lane's fragments, word for word from the PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type": A and B have two elements in a register.
struct Place {
  int row, column;
};
inline Place place_in_a(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {(i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8,
          i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
}
inline Place place_in_b(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group};
}
inline Place place_in_d(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}
inline uint32_t bf16_bits(float x) {  // of numbers that bfloat16 holds exactly
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits >> 16;
}
// Numbers of bfloat16 in a and b; d gets the outputs, 16 x 8 by row.
struct MmaData {
  float a[16][16], b[16][8], c[16][8];
};
inline void mma_kernel(const MmaData* m,
                       float* d_out) {  // 32 threads a block; a block's own of each
  const int lane = static_cast<int>(threadIdx.x);
  m += blockIdx.x, d_out += size_t{16 * 8} * blockIdx.x;
  uint32_t a[4] = {}, b[2] = {};
  float d[4];
  for (int i = 0; i < 8; ++i) {
    const Place p = place_in_a(lane, i);
    a[i / 2] |= bf16_bits(m->a[p.row][p.column]) << (16 * (i % 2));
  }
  for (int i = 0; i < 4; ++i) {
    const Place p = place_in_b(lane, i);
    b[i / 2] |= bf16_bits(m->b[p.row][p.column]) << (16 * (i % 2));
  }
  for (int i = 0; i < 4; ++i) d[i] = m->c[place_in_d(lane, i).row][place_in_d(lane, i).column];
  mma_m16n8k16_bf16(d, a, b);
  for (int i = 0; i < 4; ++i)
    d_out[place_in_d(lane, i).row * 8 + place_in_d(lane, i).column] = d[i];
}

}  // namespace emulator::testing
