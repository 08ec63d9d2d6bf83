#include "engine/cuda/persistent_path.h"

#include <fmt/core.h>

#include <atomic>
#include <vector>

#include "engine/cuda/runtime/product_path.h"

namespace evalrun::engine::cuda {
namespace {

bool one_each(const DeviceLayer& w) {
  return w.qkv.is_one() && w.o.is_one() && w.gate_up.is_one() && w.down.is_one();
}

LayerRef ref_of(const DeviceLayer& w) {
  LayerRef r;
  r.qkv = w.qkv.first().ref(), r.o = w.o.first().ref();
  r.gate_up = w.gate_up.first().ref(), r.down = w.down.first().ref();
  r.attn_norm = w.attn_norm, r.ffn_norm = w.ffn_norm;
  r.qkv_bias = w.qkv_bias, r.o_bias = w.o_bias;
  r.gate_up_bias = w.gate_up_bias, r.down_bias = w.down_bias;
  return r;
}

}  // namespace

std::string_view PersistentPath::refused(const ModelConfig& c, const DeviceModel& weights,
                                         KvType type, int head_stride) {
  if (c.paired_input) return "paired inputs";
  if (c.sliding_window > 0) return "a sliding window";
  if (c.d_model > kMostLayerWidth) return "rows that are too wide";
  if (head_stride > kMostLayerHead || head_items(c.head_dim, c.n_heads, c.n_kv_heads).tiles == 0)
    return "heads of that size";
  if (type != KvType::kBf16) return "keys and values that are not bfloat16";
  for (const DeviceLayer& w : weights.layers()) {
    if (!one_each(w) || w.attn_norm == nullptr || w.ffn_norm == nullptr)
      return "layers of that kind";
    if (w.q_norm != nullptr || w.k_norm != nullptr) return "norms of heads";
    const LayerRef r = ref_of(w);
    if (!takes_matrices(r) || r.qkv.storage != weights.layer(0).qkv.first().storage())
      return "matrices of that size or format";
  }
  return {};
}

PersistentPath::PersistentPath(const ModelConfig& c, const DeviceModel& weights, KvType type,
                               int head_stride)
    : c_(c) {
  if (product_path() != ProductPath::kPersistent) return;
  if (const std::string_view why = refused(c, weights, type, head_stride); !why.empty()) {
    static std::atomic<bool> said = false;
    if (!said.exchange(true))
      fmt::print(
          stderr,
          "warning: EVALRUN_CUDA_PATH=persistent: a model ({} layers of {}) goes by separate "
          "launches, as it has {} (docs/gpu.md, \"Layers by one kernel\")\n",
          c.n_layers, c.d_model, why);
    return;
  }
  heads_ = head_items(c.head_dim, c.n_heads, c.n_kv_heads);
  storage_ = weights.layer(0).qkv.first().storage();
  std::vector<LayerRef> refs;
  for (const DeviceLayer& w : weights.layers()) refs.push_back(ref_of(w));
  layers_ = DeviceBuffer(refs.size() * sizeof(LayerRef));
  layers_.upload(refs.data(), refs.size() * sizeof(LayerRef));
  count_ = DeviceBuffer(sizeof(unsigned));
  multiprocessors_ = prepare_all_layers();
}

bool PersistentPath::takes(const ForwardStep& step) const {
  const StepShape& s = step.shape();
  const ForwardRequest& r = *step.request;
  return heads_.tiles > 0 && s.rows <= kMostLayerRows && !s.direct && !s.kv_only && !s.at_once &&
         step.low_rank == nullptr && r.prefix == nullptr && r.skip == nullptr &&
         r.residual_layers.empty();
}

void PersistentPath::queue(LayersJob job, cudaStream_t stream) const {
  job.layers = layers_.as<LayerRef>(), job.n_layers = c_.n_layers;
  job.storage = storage_;
  job.d = c_.d_model, job.d_ffn = c_.d_ffn, job.eps = c_.norm_eps;
  job.heads = heads_;
  job.count = count_.as<unsigned>(), job.multiprocessors = multiprocessors_;
  run_all_layers(job, stream);
}

}  // namespace evalrun::engine::cuda
