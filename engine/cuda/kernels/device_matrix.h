// Weight matrices in device memory, laid out for the products (engine/cuda/kernels/products.h).
//
// A tile is 16 output channels, a block 32 inputs; inputs are padded to blocks and outputs to tiles
// with zeros. In a block lane 4 g + t of a warp holds outputs g and g + 8 at the eight inputs
// 8 t .. 8 t + 7, so that a lane's weights are whole words in every storage:
//   kBf16         rows: [out][in] bfloat16. Dense libraries read it as it is.
//   kInt8Channel  [tile][block][lane] 16 bytes w + 128: output g, then g + 8; float32 scale [out].
//   kInt8Group    the same codes; [tile][block][g] scales of g and g + 8, float16.
//   kQ4Group      [tile][block][lane] two words of eight codes (q4_pair in device_code.h);
//                 [tile][block][g] scales d, d', offsets m, m' of g and g + 8, float16.
//   kF32          [tile][in][16] float32, the host's panels: one chain per output, the CPU's bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/runtime/memory.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda {

constexpr int kTile = 16;
constexpr int kBlock = 32;

constexpr int padded_to(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// As kernels get it.
struct MatrixRef {
  const unsigned char* codes = nullptr;
  const unsigned char* scales = nullptr;  // nullptr: kF32, kBf16
  WeightStorage storage = WeightStorage::kF32;
  int tiles = 0;   // outputs / 16, padding included
  int in = 0;      // inputs, without padding
  int blocks = 0;  // inputs / 32, padding included
};

// Where a matrix made of several starts: each part is padded to whole tiles, or two parts (gate and
// up) lie in turns of eight outputs, so that a tile holds both factors of eight products.
enum class Joint { kBehind, kTurns };

class DeviceMatrix {
 public:
  // Copies and repacks; parts have one storage and one number of inputs. `stream` has run when this
  // returns.
  DeviceMatrix(std::span<const WeightMatrix* const> parts, Joint joint, cudaStream_t stream);
  explicit DeviceMatrix(const WeightMatrix& w, cudaStream_t stream);

  const MatrixRef& ref() const { return ref_; }
  WeightStorage storage() const { return ref_.storage; }
  int outputs() const { return ref_.tiles * kTile; }  // padding included
  int in() const { return ref_.in; }
  int padded_in() const { return ref_.blocks * kBlock; }
  // First output of a part; of kTurns 0 and 8.
  int part(size_t i) const { return first_[i]; }
  size_t bytes() const { return codes_.bytes() + scales_.bytes(); }
  static size_t bytes_for(WeightStorage storage, int out, int in);

 private:
  MatrixRef ref_;
  std::vector<int> first_;
  DeviceBuffer codes_, scales_;
};

// The matrices of host models on one device, shared by its sessions while any of them lives.
// Several threads may ask.
class MatrixStore {
 public:
  // A host matrix is known by its memory: the entry dies with it.
  static std::shared_ptr<const DeviceMatrix> get(int device,
                                                 std::span<const WeightMatrix* const> parts,
                                                 Joint joint, cudaStream_t stream);
  static std::shared_ptr<const DeviceMatrix> get(int device, const WeightMatrix& w,
                                                 cudaStream_t stream);
  // Bytes that get() would still have to allocate; 0 when it is there.
  static size_t missing(int device, std::span<const WeightMatrix* const> parts);
};

}  // namespace evalrun::engine::cuda
