#include "engine/cuda/step_buffers.h"

#include <algorithm>
#include <utility>

#include "engine/cuda/kernels/attention.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kLeastRows = 16;

}  // namespace

// --- all of a forward ----------------------------------------------------------------------------

bool StepBuffers::make_room(const StepShape& s, const AnswerShape& answer_shape,
                            const Extras& extras) {
  const ModelConfig& c = session_.c;
  const DeviceModel& weights = session_.weights;
  const int rows = rounded_size(s.rows, kLeastRows);
  const auto n = static_cast<size_t>(rows);
  const size_t record_size = record_bytes(s);
  ensure(record, record_size);
  ensure(record_host, record_size);
  ensure_floats(embeddings_host, extras.embedding_values);
  ensure_floats(embeddings, extras.embedding_values);
  ensure_floats(x, n * static_cast<size_t>(c.d_model));
  if (c.paired_input) ensure_floats(e, n * static_cast<size_t>(c.d_model));
  ensure_layer_inputs(rows);
  const auto widest = static_cast<size_t>(weights.widest());
  ensure_floats(sums, n * widest);
  if (session_.dense_chunk(s)) {
    ensure_floats(dense_sums, n * widest);
    ensure(unpacked, weights.most_unpacked());
  }
  const auto queries = static_cast<size_t>(c.n_heads) * static_cast<size_t>(session_.head_stride);
  ensure(q, n * queries * session_.value_bytes());
  if (session_.bf16 && !s.at_once) {
    const size_t floats = partial_floats(rows, c.n_heads, s.slots, session_.head_stride);
    ensure_floats(partial,
                  s.direct && s.rows > kSplitRows ? std::min(floats, kMostPromptPartial) : floats);
  }
  ensure_outputs(s, answer_shape);
  ensure_floats(residual_host, extras.residual_values);
  for (const WeightStorage s_of_layers : weights.storages())
    ensure_workspace(s_of_layers, weights.widest(), rows);
  if (extras.low_rank != nullptr) ensure_low_rank(*extras.low_rank, rows);
  if (!s.direct &&
      session_.kv.room_for_rows(extras.kept + s.rows, extras.kept > 0, session_.stream()))
    moved_ = true;
  return std::exchange(moved_, false);
}

void StepBuffers::ensure_layer_inputs(int rows) {
  const ModelConfig& c = session_.c;
  layer_in = input_rows(layer_in_, rows, std::max(c.input_width(), c.d_model), session_.bf16);
  o_in = input_rows(o_in_, rows, c.q_dim(), session_.bf16);
  down_in = input_rows(down_in_, rows, c.d_ffn, session_.bf16);
}

void StepBuffers::ensure_outputs(const StepShape& s, const AnswerShape& answer_shape) {
  const ModelConfig& c = session_.c;
  const DeviceMatrix& head = session_.weights.head();
  const int rows = rounded_size(std::max(s.logits, s.answers), 1);
  if (s.logits + s.answers > 0)
    head_in = input_rows(head_in_, rows, c.d_model, head.storage() != WeightStorage::kF32);
  const size_t n_logits = static_cast<size_t>(s.logits) * static_cast<size_t>(c.n_logits());
  ensure_floats(logits, n_logits);
  ensure_floats(logits_host, n_logits);
  if (s.answers > 0 && answers.make_room(answer_shape)) moved_ = true;
  const size_t n_hidden = static_cast<size_t>(s.hidden) * static_cast<size_t>(c.d_model);
  ensure_floats(hidden, n_hidden);
  ensure_floats(hidden_host, n_hidden);
  ensure_workspace(head.storage(), head.outputs(), rows);
}

void StepBuffers::ensure_low_rank(const DeviceLowRank& low_rank, int rows) {
  const ModelConfig& c = session_.c;
  const auto n = static_cast<size_t>(rows);
  ensure_floats(inner, n * static_cast<size_t>(low_rank.widest));
  const int inputs = std::max({c.input_width(), c.q_dim(), c.d_ffn});
  ensure_floats(outer, n * static_cast<size_t>(padded_to(inputs, kBlock)));
  ensure_workspace(low_rank.storage, low_rank.widest, rows);
}

// --- one buffer ----------------------------------------------------------------------------------

InputRows StepBuffers::input_rows(DeviceBuffer& buffer, int rows, int width, bool bf16) {
  const int stride = bf16 ? padded_to(width, kBlock) : width;
  ensure(buffer, static_cast<size_t>(rows) * static_cast<size_t>(stride) * (bf16 ? 2 : 4));
  return {buffer.as<void>(), stride, bf16};
}

void StepBuffers::ensure_workspace(WeightStorage storage, int width, int rows) {
  if (workspace.ensure(product_geometry(storage, width / kTile, kAnyBlocks, rows))) moved_ = true;
}

size_t StepBuffers::device_bytes() const {
  size_t bytes = 0;
  for (const DeviceBuffer* b : buffers()) bytes += b->bytes();
  for (const DeviceBuffer* b : answers.buffers()) bytes += b->bytes();
  return bytes;
}

std::vector<const DeviceBuffer*> StepBuffers::buffers() const {
  return {&record,
          &embeddings,
          &x,
          &e,
          &layer_in_,
          &o_in_,
          &down_in_,
          &head_in_,
          &sums,
          &q,
          &partial,
          &dense_sums,
          &unpacked,
          &inner,
          &outer,
          &logits,
          &hidden,
          &workspace.sums,
          &workspace.counters};
}

}  // namespace evalrun::engine::cuda
