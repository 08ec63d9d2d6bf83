#include "engine/cuda/layer_queue.h"

#include "engine/cuda/kernels/attention.h"

namespace evalrun::engine::cuda {

// --- one forward ---------------------------------------------------------------------------------

bool LayerQueue::queue(const ForwardStep& step) {
  step_ = &step;
  const ModelConfig& c = session_.c;
  copy_inputs();
  if (session_.measure) session_.events.begin(session_.stream());
  const InputView& given = step.request->embeddings;
  const float* embeddings = given.computed ? given.data : b_.embeddings.as<float>();
  embed_rows(rows_, step.shape().rows, session_.weights.embedding().ref(), embeddings,
             c.input_width(), c.d_model, b_.x.as<float>(), b_.e.as<float>(), session_.stream());
  session_.mark(&PhaseTimes::norms);
  // Events between phases are for launches of their own.
  if (!session_.measure && session_.persistent.takes(step)) {
    all_layers();
    return true;
  }
  for (int l = 0; l < c.n_layers; ++l) {
    keep_residual(l);
    if (!skipped(&SkipSet::attention, l)) {
      attention_block(l);
      if (ends_at(l)) return false;
    }
    if (!skipped(&SkipSet::mlp, l)) mlp_block(l);
  }
  keep_residual(c.n_layers);
  return true;
}

void LayerQueue::copy_inputs() {
  const StepLayout layout = layout_of(step_->shape());
  const auto* block = b_.record.as<unsigned char>();
  rows_ = reinterpret_cast<const StepRow*>(block + layout.rows);
  header_ = reinterpret_cast<const StepHeader*>(block + layout.header);
  visible_ = reinterpret_cast<const int32_t*>(block + layout.visible);
  items_ = reinterpret_cast<const AttentionItem*>(block + layout.items);
  items_windowed_ = reinterpret_cast<const AttentionItem*>(block + layout.items_windowed);
  EVALRUN_CUDA(cudaMemcpyAsync(b_.record.as<void>(), b_.record_host.as<void>(), layout.bytes,
                               cudaMemcpyHostToDevice, session_.stream()));
  if (step_->embedding_bytes() > 0)
    EVALRUN_CUDA(cudaMemcpyAsync(b_.embeddings.as<void>(), b_.embeddings_host.as<void>(),
                                 step_->embedding_bytes(), cudaMemcpyHostToDevice,
                                 session_.stream()));
}

bool LayerQueue::skipped(const std::vector<bool> SkipSet::*set, int l) const {
  const SkipSet* skip = step_->request->skip;
  return skip != nullptr && !(skip->*set).empty() && (skip->*set)[static_cast<size_t>(l)];
}

void LayerQueue::keep_residual(int l) {
  const auto& layers = step_->request->residual_layers;
  const size_t bytes = static_cast<size_t>(step_->shape().rows) *
                       static_cast<size_t>(session_.c.d_model) * sizeof(float);
  for (size_t j = 0; j < layers.size(); ++j)
    if (layers[j] == l)
      EVALRUN_CUDA(cudaMemcpyAsync(b_.residual_host.as<unsigned char>() + j * bytes,
                                   b_.x.as<void>(), bytes, cudaMemcpyDeviceToHost,
                                   session_.stream()));
}

// --- one layer -----------------------------------------------------------------------------------

void LayerQueue::attention_block(int l) {
  const ModelConfig& c = session_.c;
  const DeviceLayer& w = session_.weights.layer(l);
  const InputRows in = input_of(w.qkv);
  if (c.paired_input && w.embed_norm != nullptr) {
    norm(w.embed_norm, b_.e.as<float>(), in, 0);
    norm(w.attn_norm, b_.x.as<float>(), in, c.d_model);
  } else {
    norm(w.attn_norm, b_.x.as<float>(), in, 0);
  }
  session_.mark(&PhaseTimes::norms);
  const bool plain = step_->low_rank == nullptr;
  product_to_sums(w.qkv, in, plain ? w.qkv_bias : nullptr);
  if (!plain)
    update_rows(update_of(l, DeviceLowRank::kQkv, in, w.qkv, w.qkv_bias), step_->shape().rows,
                session_.stream());
  session_.mark(&PhaseTimes::weights);
  rotate(l);
  session_.mark(&PhaseTimes::norms);
  if (ends_at(l)) return;
  attend(l);
  session_.mark(&PhaseTimes::attention);
  product_to_residual(w.o, b_.o_in, l, DeviceLowRank::kO, w.o_bias);
  session_.mark(&PhaseTimes::weights);
}

// Queries, keys and values out of sums; keys and values to where attention finds them.
void LayerQueue::rotate(int l) {
  const ModelConfig& c = session_.c;
  const DeviceLayer& w = session_.weights.layer(l);
  const StepShape& s = step_->shape();
  RotateJob job;
  job.header = header_, job.rows = rows_;
  job.y = b_.sums.as<float>(), job.ldy = w.qkv.outputs();
  job.q_at = w.qkv.part(0), job.k_at = w.qkv.part(1), job.v_at = w.qkv.part(2);
  job.q_norm = w.q_norm, job.k_norm = w.k_norm;
  job.eps = c.norm_eps;
  job.cos = session_.weights.cos(), job.sin = session_.weights.sin();
  job.heads = c.n_heads, job.kv_heads = c.n_kv_heads;
  job.head_dim = c.head_dim, job.head_stride = session_.head_stride;
  job.q = b_.q.as<void>(), job.cache = session_.kv.cache(l), job.step = session_.kv.rows(l);
  job.direct = s.direct, job.bf16 = session_.bf16, job.type = session_.kv.type();
  rotate_rows(job, s.rows, session_.stream());
}

AttentionArguments LayerQueue::attention_of(int l) const {
  const ModelConfig& c = session_.c;
  const StepShape& s = step_->shape();
  AttentionArguments a;
  a.rows = rows_, a.visible = visible_;
  a.windowed = c.layer_is_windowed(l);
  a.items = a.windowed ? items_windowed_ : items_;
  a.max_items = a.windowed ? s.items_windowed : s.items;
  a.cache = session_.kv.cache(l), a.step = session_.kv.rows(l);
  if (step_->request->prefix != nullptr) {
    a.prefix = session_.kv.prefix(l);
    a.prefix_length = step_->request->prefix->length;
    a.prefix_heads = session_.kv.prefix_heads();
  }
  a.n_rows = s.rows, a.heads = c.n_heads, a.kv_heads = c.n_kv_heads;
  a.head_dim = c.head_dim, a.head_stride = session_.head_stride, a.slots = s.slots;
  a.q = b_.q.as<void>(), a.partial = b_.partial.as<float>();
  a.at_once = s.at_once;
  a.out = b_.o_in.data, a.out_stride = b_.o_in.stride;
  return a;
}

void LayerQueue::attend(int l) {
  const AttentionArguments a = attention_of(l);
  if (!session_.bf16)
    attend_f32(a, session_.kv.type(), session_.stream());
  else if (in_bytes(session_.kv.type()))
    attend_bytes(a, session_.kv.type(), session_.stream());
  else
    attend_bf16(a, session_.stream());
}

void LayerQueue::mlp_block(int l) {
  const ModelConfig& c = session_.c;
  const DeviceLayer& w = session_.weights.layer(l);
  const InputRows in = input_of(w.gate_up);
  norm(w.ffn_norm, b_.x.as<float>(), in, 0);
  session_.mark(&PhaseTimes::norms);
  if (step_->low_rank == nullptr && w.gate_up.is_one()) {
    Epilogue e;
    e.activated = b_.down_in.data, e.ldy = b_.down_in.stride, e.outputs = c.d_ffn;
    e.bias = w.gate_up_bias;
    product(w.gate_up.first(), in, e);
  } else {
    // Gate and up of two storages lie behind each other: what follows their sums finds both.
    product_to_sums(w.gate_up, in, nullptr);
    UpdateJob job = update_of(l, DeviceLowRank::kGateUp, in, w.gate_up, w.gate_up_bias);
    job.joint = Joint::kTurns, job.activated = b_.down_in, job.width = c.d_ffn;
    if (!w.gate_up.is_one()) job.up_at = w.gate_up.part(1);
    update_rows(job, step_->shape().rows, session_.stream());
  }
  product_to_residual(w.down, b_.down_in, l, DeviceLowRank::kDown, w.down_bias);
  session_.mark(&PhaseTimes::weights);
}

// The same in one launch.
void LayerQueue::all_layers() {
  LayersJob job;
  job.n = step_->shape().rows, job.x = b_.x.as<float>();
  job.header = header_;
  job.cos = session_.weights.cos(), job.sin = session_.weights.sin();
  job.attention = attention_of(0);
  job.cache_layer = session_.kv.cache_layer_bytes(),
  job.rows_layer = session_.kv.rows_layer_bytes();
  job.activated = b_.down_in;
  session_.persistent.queue(job, session_.stream());
}

// --- norms and products --------------------------------------------------------------------------

void LayerQueue::norm(const float* weights, const float* x, const InputRows& to, int at) {
  NormJob job;
  job.x = x, job.d = session_.c.d_model, job.weights = weights, job.eps = session_.c.norm_eps;
  job.to = to, job.at = at;
  norm_rows(job, step_->shape().rows, session_.stream());
}

// Inputs of a layer with the padding of this matrix's width.
InputRows LayerQueue::input_of(const JointMatrix& m) const {
  return {b_.layer_in.data, session_.bf16 ? m.padded_in() : m.in(), session_.bf16};
}

void LayerQueue::product(const DeviceMatrix& m, const InputRows& in, const Epilogue& e) {
  const int rows = step_->shape().rows;
  if (!session_.dense_chunk(step_->shape()) || m.storage() == WeightStorage::kF32)
    return multiply({m.ref(), in.data, rows, e}, b_.workspace, session_.stream());
  // Sums go where they belong at once, where that is as wide as they are and nothing else is
  // done to them.
  float* to = e.residual != nullptr ? e.residual : e.y;
  const bool straight =
      to != nullptr && e.bias == nullptr && e.ldy == m.outputs() && e.outputs == m.outputs();
  session_.dense->multiply(m.ref(), in.data, rows, straight ? to : b_.dense_sums.as<float>(),
                           straight && e.residual != nullptr, b_.unpacked);
  if (!straight)
    finish_sums({m.ref(), in.data, rows, e}, b_.dense_sums.as<float>(), session_.stream());
}

// sums = m in + bias, all outputs of the device's matrices.
void LayerQueue::product_to_sums(const JointMatrix& m, const InputRows& in, const float* bias) {
  for (const JointMatrix::Piece& piece : m.pieces()) {
    Epilogue e;
    e.y = b_.sums.as<float>() + piece.first, e.ldy = m.outputs();
    e.outputs = piece.matrix->outputs(), e.bias = bias == nullptr ? nullptr : bias + piece.first;
    product(*piece.matrix, in, e);
  }
}

// x += m in + bias, with the low-rank update in between when there is one.
void LayerQueue::product_to_residual(const JointMatrix& m, const InputRows& in, int l, int group,
                                     const float* bias) {
  const int d = session_.c.d_model;
  if (step_->low_rank == nullptr) {
    Epilogue e;
    e.residual = b_.x.as<float>(), e.ldy = e.outputs = d, e.bias = bias;
    return product(m.first(), in, e);
  }
  product_to_sums(m, in, nullptr);
  UpdateJob job = update_of(l, group, in, m, bias);
  job.residual = b_.x.as<float>(), job.width = d;
  update_rows(job, step_->shape().rows, session_.stream());
}

// What makes of sums, the product m in without its bias, what it is with the low-rank updates;
// queues the product with their A.
UpdateJob LayerQueue::update_of(int l, int which, const InputRows& in, const JointMatrix& m,
                                const float* bias) {
  const int n = step_->shape().rows;
  UpdateJob job;
  job.rows = rows_, job.y = b_.sums.as<float>(), job.ldy = job.width = m.outputs();
  job.bias = bias;
  if (step_->low_rank == nullptr) return job;
  const auto& group = step_->low_rank->layers[static_cast<size_t>(l)][static_cast<size_t>(which)];
  if (group.a == nullptr) return job;
  const DeviceMatrix& a = *group.a;
  const bool bf16 = a.storage() != WeightStorage::kF32;
  InputRows outer = in;
  if (bf16 != in.bf16) {
    outer = {b_.outer.as<void>(), bf16 ? a.padded_in() : a.in(), bf16};
    convert_rows(in, a.in(), outer, n, session_.stream());
  }
  Epilogue inner;
  inner.y = b_.inner.as<float>(), inner.ldy = inner.outputs = a.outputs();
  multiply({a.ref(), outer.data, n, inner}, b_.workspace, session_.stream());
  job.inner = b_.inner.as<float>(), job.ld_inner = a.outputs();
  for (const DeviceLowRank::Part& part : group.parts) {
    LowRankPart& to = job.parts[job.n_parts];
    to.first = m.part(static_cast<size_t>(job.n_parts++));
    if (part.b == nullptr) continue;
    to.b = part.b->ref(), to.width = part.b->outputs();
    to.rank = part.rank, to.scale = part.scale, to.inner_at = part.inner_at;
  }
  return job;
}

}  // namespace evalrun::engine::cuda
