// A weight matrix as kernels get it, laid out for the products (engine/cuda/kernels/products.h).
//
// A tile is 16 output channels, a block 32 inputs; inputs are padded to blocks and outputs to tiles
// with zeros. In a block lane 4 g + t of a warp holds outputs g and g + 8 at the eight inputs
// 8 t .. 8 t + 7, so that a lane's weights are whole words in every storage:
//   kBf16         rows: [out][in] bfloat16. Dense libraries read it as it is.
//   kInt8Channel  [tile][block][lane] 16 bytes w + 128: output g, then g + 8; float32 scale [out].
//   kInt8Group    the same codes; [tile][block][g] scales of g and g + 8, float16.
//   kQ4Group      [tile][block][lane] two words of eight codes (q4_pair in device_code.h);
//                 [tile][block][g] scales d, d', offsets m, m' of g and g + 8, float16. The host's
//                 kQ4Centred becomes this on the way.
//   kQ4K, kQ5K    [tile][block][lane] two words of eight codes' low bits, as kQ4Group; behind those
//                 of all lanes [lane] kQ5K 16, kQ6K 32 high bits (engine/cuda/kernels/k_codes.h).
//                 [tile][block][g] bytes: scales of g and g + 8, minima of both. [tile][8
//                 blocks][g] factors d, d', m, m' of g and g + 8, float16, m = -dmin.
//   kQ6K          the same but for [tile][block][g] bytes: scales + 128 of g and g + 8, of the
//   first
//                 16 inputs and of the others; and factors d, d' alone.
//   kF32          [tile][in][16] float32, the host's panels: one chain per output, the CPU's bits.
#pragma once
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda {

constexpr int kTile = 16;
constexpr int kBlock = 32;

constexpr int padded_to(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// As kernels get it.
struct MatrixRef {
  const unsigned char* codes = nullptr;
  const unsigned char* scales = nullptr;   // nullptr: kF32, kBf16
  const unsigned char* factors = nullptr;  // of K-quants
  WeightStorage storage = WeightStorage::kF32;
  int tiles = 0;   // outputs / 16, padding included
  int in = 0;      // inputs, without padding
  int blocks = 0;  // inputs / 32, padding included
};

// Where a matrix made of several starts: each part is padded to whole tiles, or two parts (gate and
// up) lie in turns of eight outputs, so that a tile holds both factors of eight products.
enum class Joint { kBehind, kTurns };

}  // namespace evalrun::engine::cuda
