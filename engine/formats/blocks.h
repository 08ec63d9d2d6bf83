// One block of each quantised type of GGUF files, widened to float32: block_bytes() bytes in,
// block_length() values out. For dtype.cpp alone, which has the sizes; the layouts stand in the
// files of the families. All numbers are little-endian, and the loads at the end serve whoever
// reads blocks.
//
// Arithmetic: float32, in the order of ggml's dequantize_row_* and of PyPI's gguf package, which is
// the oracle of the tests, bit for bit. The files rely on -ffp-contract=off: a fused d * q + m
// would round differently.
#pragma once
#include <cstdint>

namespace evalrun::engine::blocks {

using Function = void (*)(const uint8_t* in, float* out);

// A scale per 32 weights, evenly spaced codes (blocks_even.cpp).
void q8_0(const uint8_t* in, float* out);
void q4_0(const uint8_t* in, float* out);
void q4_1(const uint8_t* in, float* out);
void q5_0(const uint8_t* in, float* out);
void q5_1(const uint8_t* in, float* out);
// Codes in a table of values (blocks_table.cpp).
void iq4_nl(const uint8_t* in, float* out);
void iq4_xs(const uint8_t* in, float* out);
void mxfp4(const uint8_t* in, float* out);
void nvfp4(const uint8_t* in, float* out);
// Superblocks of 256 weights with scales of scales (blocks_k.cpp).
void q2_k(const uint8_t* in, float* out);
void q3_k(const uint8_t* in, float* out);
void q4_k(const uint8_t* in, float* out);
void q5_k(const uint8_t* in, float* out);
void q6_k(const uint8_t* in, float* out);
// Superblocks whose weights are points of a grid (blocks_grid.cpp, grids.h).
void iq2_xxs(const uint8_t* in, float* out);
void iq2_xs(const uint8_t* in, float* out);
void iq2_s(const uint8_t* in, float* out);
void iq3_xxs(const uint8_t* in, float* out);
void iq3_s(const uint8_t* in, float* out);
void iq1_s(const uint8_t* in, float* out);
void iq1_m(const uint8_t* in, float* out);
// Signs, with or without zeros (blocks_sign.cpp).
void tq1_0(const uint8_t* in, float* out);
void tq2_0(const uint8_t* in, float* out);
void q1_0(const uint8_t* in, float* out);

inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
inline uint32_t load_u32(const uint8_t* p) {
  return static_cast<uint32_t>(load_u16(p)) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}
// The i-th half byte: the low half of a byte comes first.
inline int nibble(const uint8_t* p, int i) { return p[i / 2] >> (4 * (i % 2)) & 15; }

}  // namespace evalrun::engine::blocks
