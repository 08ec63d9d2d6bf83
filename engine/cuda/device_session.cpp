#include "engine/cuda/device_session.h"

#include "engine/base/error.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/memory_plan.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kDenseRows = 64;  // of a prefill chunk, from which on cuBLAS multiplies

int made_current(int device) {
  EVALRUN_CUDA(cudaSetDevice(device));
  return device;
}

int checked_head_stride(const ModelConfig& c, bool bf16) {
  const int stride = bf16 ? head_stride_for(c.head_dim) : c.head_dim;
  if (stride == 0 || c.head_dim > 256)
    throw base::usage_error(
        fmt::format("{}: heads of {} dimensions; the CUDA kernels take up to 256", c.name,
                    c.head_dim),
        "--device cpu");
  return stride;
}

// Before anything large is allocated.
std::unique_ptr<Dense> prepare_kernels(const Model& model, const SessionOptions& options,
                                       const DeviceSession& s) {
  check_memory(
      plan_memory(model, options, s.head_stride, DeviceModel::missing_bytes(model, s.device)),
      model, options);
  prepare_products();
  if (!s.bf16) return nullptr;
  prepare_attention();
  // Without a cache the context is computed anew in every step, as many rows as it has then,
  // and a library may add up in another order for another number of rows.
  return options.kv_cache ? Dense::find(s.stream()) : nullptr;
}

}  // namespace

DeviceSession::DeviceSession(const Model& model, const SessionOptions& options, int on)
    : c(model.config()),
      device(made_current(on)),
      bf16(model.layer(0).q.storage() != WeightStorage::kF32),
      measure(options.measure_phases),
      queue(options.time_device),
      head_stride(checked_head_stride(c, bf16)),
      dense(prepare_kernels(model, options, *this)),
      weights(model, device, options.max_tokens, queue.stream()),
      persistent(c, weights, kv_type_of(options, bf16), head_stride),
      kv(c, options.n_sequences, options.max_tokens, kv_type_of(options, bf16), head_stride) {}

bool DeviceSession::dense_chunk(const StepShape& s) const {
  return dense != nullptr && s.direct && s.rows >= kDenseRows;
}

}  // namespace evalrun::engine::cuda
