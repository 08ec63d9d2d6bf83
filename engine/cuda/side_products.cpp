#include "engine/cuda/side_products.h"

#include <cstring>

#include "engine/cuda/products.h"
#include "engine/cuda/row_ops.h"

namespace evalrun::engine::cuda {

MatrixView SideProducts::multiply(const WeightMatrix& w, MatrixView x, int device,
                                  cudaStream_t stream) {
  const auto m = MatrixStore::get(device, w, stream);
  matrices_.emplace(m.get(), m);
  const auto n = static_cast<size_t>(x.rows);
  const size_t x_bytes = n * static_cast<size_t>(x.cols) * sizeof(float);
  const size_t y_bytes = n * static_cast<size_t>(w.out()) * sizeof(float);
  x_host_.ensure(x_bytes), x_.ensure(x_bytes);
  std::memcpy(x_host_.as<void>(), x.data, x_bytes);  // before y moves: x may be the last y
  y_host_.ensure(y_bytes), y_.ensure(y_bytes);
  const bool bf16 = w.storage() != WeightStorage::kF32;
  const int stride = bf16 ? m->padded_in() : m->in();
  rounded_.ensure(n * static_cast<size_t>(stride) * (bf16 ? 2 : 4));
  const InputRows in = {rounded_.as<void>(), stride, bf16};
  workspace_.ensure(product_geometry(m->storage(), m->ref().tiles, x.rows).workspace_bytes);

  EVALRUN_CUDA(
      cudaMemcpyAsync(x_.as<void>(), x_host_.as<void>(), x_bytes, cudaMemcpyHostToDevice, stream));
  round_rows(x_.as<float>(), x.cols, x.cols, 1.0f, in, x.rows, stream);
  Epilogue e;
  e.y = y_.as<float>(), e.ldy = e.outputs = w.out();
  cuda::multiply({m->ref(), in.data, x.rows, e}, workspace_.as<float>(), stream);
  EVALRUN_CUDA(
      cudaMemcpyAsync(y_host_.as<void>(), y_.as<void>(), y_bytes, cudaMemcpyDeviceToHost, stream));
  EVALRUN_CUDA(cudaStreamSynchronize(stream));
  return {y_host_.as<float>(), x.rows, w.out()};
}

}  // namespace evalrun::engine::cuda
