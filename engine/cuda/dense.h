// Products of prefill chunks by cuBLAS: many rows, where arithmetic counts and not bytes. The
// library is loaded at run time (libcublas.so of CUDA 12 or 13), so that a build runs where there
// is only a driver; without it prefill goes through the kernels of decoding, slower.
// EVALRUN_CUDA_CUBLAS=0 leaves it out.
//
// Its sums have an order of their own. Every method prefills the same chunks by the same calls, so
// all methods still start from the same keys and values, bit for bit. (Not so without a KV cache,
// where the context is computed anew in every step: there it is left out.)
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/memory.h"

namespace evalrun::engine::cuda {

class Dense {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what Hopper's kernels want
  // nullptr when there is none, or it is not wanted.
  static std::unique_ptr<Dense> find(cudaStream_t stream);
  static std::string version();  // "13.1.0", "none"
  ~Dense();
  // sums [rows][outputs of w] = x W^T (or +=), float32, of bfloat16 rows [rows][padded inputs].
  // Weights that are not bfloat16 are unpacked to `unpacked` first, [outputs][padded inputs],
  // rounded.
  void multiply(const MatrixRef& w, const void* x, int rows, float* sums, bool add,
                DeviceBuffer& unpacked);
  static size_t unpacked_bytes(const MatrixRef& w);

 private:
  explicit Dense(cudaStream_t stream);
  struct Library;
  cudaStream_t stream_;
  std::unique_ptr<Library> library_;
  void* handle_ = nullptr;
  DeviceBuffer workspace_;
};

}  // namespace evalrun::engine::cuda
