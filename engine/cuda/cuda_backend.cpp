// The CUDA device: a forward as one queue of kernels, with one wait at its end; steps are replayed
// as a graph from the second of a kind on.
//
//   record, embeddings -> device | embed | per layer: norm, q k v, rotate (keys and values
//   written), attention, o (+= residual), norm, gate up (silu), down (+= residual) | norm, head,
//   answers (best tokens, draws) | -> host
//
// A prefill chunk writes keys and values to the cache at once, all other rows to memory of their
// own, from where commit() copies.
//
// One file: what a forward queues, in its order, over buffers that all of it shares.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/cuda/answer_buffers.h"
#include "engine/cuda/dense.h"
#include "engine/cuda/device_distributions.h"
#include "engine/cuda/device_model.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/kernels/row_ops.h"
#include "engine/cuda/kernels/step_record.h"
#include "engine/cuda/kv_memory.h"
#include "engine/cuda/memory_plan.h"
#include "engine/cuda/runtime/graphs.h"
#include "engine/cuda/runtime/phase_events.h"
#include "engine/cuda/runtime/queue.h"
#include "engine/cuda/side_products.h"

namespace evalrun::engine {
namespace {

using namespace cuda;  // NOLINT: this file is its backend

constexpr int kLeastRows = 16;
constexpr int kFewLogits = 2;   // rows whose logits are sent unasked: they will be read
constexpr int kDenseRows = 64;  // of a prefill chunk, from which on cuBLAS multiplies

class CudaBackend final : public Backend, public LogitSource {
 public:
  CudaBackend(std::shared_ptr<const Model> model, const SessionOptions& options, int device)
      : model_(std::move(model)),
        c_(model_->config()),
        device_(device),
        isa_(options.isa),
        measure_(options.measure_phases),
        kv_cache_(options.kv_cache),
        bf16_(model_->layer(0).q.storage() != WeightStorage::kF32) {
    EVALRUN_CUDA(cudaSetDevice(device_));
    queue_.emplace(options.time_device);
    const char* graphs = std::getenv("EVALRUN_CUDA_GRAPHS");
    graphs_wanted_ = graphs == nullptr || std::string_view(graphs) != "0";

    side_.emplace(graphs_wanted_);
    head_stride_ = bf16_ ? head_stride_for(c_.head_dim) : c_.head_dim;
    if (head_stride_ == 0 || c_.head_dim > 256)
      throw base::usage_error(
          fmt::format("{}: heads of {} dimensions; the CUDA kernels take up to 256", c_.name,
                      c_.head_dim),
          "--device cpu");
    check_memory(
        plan_memory(*model_, options, head_stride_, DeviceModel::missing_bytes(*model_, device_)),
        *model_, options);
    prepare_products();
    if (bf16_) {
      prepare_attention();
      // Without a cache the context is computed anew in every step, as many rows as it has then,
      // and a library may add up in another order for another number of rows.
      if (options.kv_cache) dense_ = Dense::find(queue_->stream());
    }
    weights_.emplace(*model_, device_, options.max_tokens, queue_->stream());
    kv_.emplace(c_, options.n_sequences, options.max_tokens, bf16_, head_stride_);
    const PlannedShapes planned = planned_shapes(c_, options.max_tokens, bf16_);
    make_room(planned.prefill, {}, 0, 0, 0);
    make_room(planned.step, planned.answers, 0, 0, 0);
  }
  ~CudaBackend() override {
    (void)cudaSetDevice(device_);
    if (queue_) (void)cudaStreamSynchronize(queue_->stream());
  }

  std::string isa() const override { return isa_; }
  int n_threads() const override { return 1; }

  void forward(const ForwardPlan& plan, const ForwardRequest& request, ForwardResult& result,
               Answers& answers) override {
    EVALRUN_CUDA(cudaSetDevice(device_));
    if (under_way_) wait();  // one that failed half queued: it still reads what is written below
    StepOptions o;
    o.group = c_.n_heads / c_.n_kv_heads;
    o.sliding_window = c_.sliding_window;
    o.items = bf16_;
    o.prefix_length = request.prefix == nullptr ? 0 : request.prefix->length;
    o.prefix_per_head =
        request.prefix != nullptr && request.prefix->heads == c_.n_heads && o.group > 1;
    if (bf16_ && plan.prefill() && request.prefix == nullptr) {
      const PlanRow& last = plan.rows().back();
      o.at_once = attends_at_once(plan.n_rows(), last.context + last.visible_count, c_.n_heads,
                                  c_.n_kv_heads, head_stride_);
    }
    record_.build(plan, request, o);
    request_ = &request;
    dists_ = record_.shape().tasks ? &dists_on(*request.dists, device_) : nullptr;
    answer_shape_ = answer_shape(answers.n_best());
    low_rank_ = request.low_rank == nullptr
                    ? nullptr
                    : &low_ranks_.get(*request.low_rank, device_, queue_->stream());
    if (request.prefix != nullptr && kv_->load_prefix(*request.prefix, queue_->stream()))
      graphs_.clear();
    make_room(record_.shape(), answer_shape_, embedding_bytes() / sizeof(float),
              request.residual_layers.size() * static_cast<size_t>(record_.shape().rows) *
                  static_cast<size_t>(c_.d_model),
              record_.header().kept);

    record_.write(plan, record_host_.as<unsigned char>());
    if (embedding_bytes() > 0)
      std::memcpy(embeddings_host_.as<void>(), request.embeddings.data, embedding_bytes());
    under_way_ = true;
    queue_->begin();
    // Not as a graph: events between the phases; and chunks of prompts, where one would be made
    // within the prefill of whoever meets a length first, a drafter's, too. But without
    // a cache whole chunks are met in every step.
    const StepShape& shape = record_.shape();
    if (measure_ || (shape.direct && (kv_cache_ || shape.rows < kPromptChunk)) ||
        request.embeddings.rows > SideProducts::kGraphRows)
      queue_forward();
    else
      graphs_.run(key(), graphs_wanted_, queue_->stream(), [this] { queue_forward(); });
    wait();

    const StepShape& s = record_.shape();
    direct_ = s.direct;
    result.logits = {logits_host_.as<float>(), s.logits, c_.n_logits()};
    fetched_.assign(static_cast<size_t>(s.logits), s.logits <= kFewLogits);
    if (s.logits > kFewLogits) result.source = this;
    result.hidden = {hidden_host_.as<float>(), s.hidden, c_.d_model};
    residual_views_.clear();
    const size_t rows = static_cast<size_t>(s.rows) * static_cast<size_t>(c_.d_model);
    for (size_t j = 0; j < request.residual_layers.size(); ++j)
      residual_views_.push_back({residual_host_.as<float>() + j * rows, s.rows, c_.d_model});
    result.residual = residual_views_;
    for (size_t j = 0; j < plan.answer_rows().size(); ++j)
      read_answer(static_cast<int>(j), plan.answer_rows()[j], answers);
    if (measure_) times_ = events_.times();
  }

  // The head's product is the last that is queued, and is not overwritten before the next forward.
  void fetch(int slot) override {
    if (fetched_[static_cast<size_t>(slot)]) return;
    EVALRUN_CUDA(cudaSetDevice(device_));
    const size_t vocab = static_cast<size_t>(c_.n_logits()), at = static_cast<size_t>(slot) * vocab;
    queue_->begin();
    EVALRUN_CUDA(cudaMemcpyAsync(logits_host_.as<float>() + at, logits_.as<float>() + at,
                                 vocab * sizeof(float), cudaMemcpyDeviceToHost, queue_->stream()));
    wait();
    fetched_[static_cast<size_t>(slot)] = true;
  }

  void commit(std::span<const int> rows, int first, int sequence) override {
    if (direct_ || rows.empty()) return;  // a prefill chunk is where it belongs
    EVALRUN_CUDA(cudaSetDevice(device_));
    if (commit_pending_) wait();  // the list is still being read
    const size_t bytes = rows.size_bytes();
    path_host_.ensure(bytes), path_.ensure(bytes);
    std::memcpy(path_host_.as<void>(), rows.data(), bytes);
    queue_->begin();
    EVALRUN_CUDA(cudaMemcpyAsync(path_.as<void>(), path_host_.as<void>(), bytes,
                                 cudaMemcpyHostToDevice, queue_->stream()));
    kv_->commit(path_.as<int32_t>(), static_cast<int>(rows.size()), first, sequence,
                queue_->stream());
    queue_->end();
    commit_pending_ = true;
  }

  void copy_sequence(int from, int to, int length) override {
    EVALRUN_CUDA(cudaSetDevice(device_));
    queue_->begin();
    kv_->copy_sequence(from, to, length, queue_->stream());
    queue_->end();
  }

  // Its wait is that of the forward, score or draw behind it.
  InputView compute(const RowProgram& program, int result) override {
    EVALRUN_CUDA(cudaSetDevice(device_));
    if (under_way_ || computing_) wait();
    computing_ = true;
    return side_->compute(program, result, weights_->embedding(), device_, *queue_);
  }
  MatrixView multiply(const WeightMatrix& w, InputView x) override {
    begin_side();
    const MatrixView y = side_->multiply(w, x, device_, *queue_);
    waited();
    return y;
  }
  bool answers() const override { return true; }
  int prefill_chunk() const override { return kPromptChunk; }
  Scores best_of(Session::Heads heads, InputView x, int n_best) override {
    begin_side();
    Scores scores = side_->best_of(heads, x, n_best, device_, *queue_);
    waited();
    return scores;
  }

  std::span<const int32_t> draw(Session::Heads heads, InputView x,
                                const DistributionDraws& draws) override {
    begin_side();
    const auto tokens = side_->draw(heads, x, draws, device_, *queue_);
    waited();
    return tokens;
  }
  std::unique_ptr<DistributionStore> make_distributions(int slots, int vocab,
                                                        std::span<const int32_t> ids) override {
    return std::make_unique<DeviceDistributions>(device_, slots, vocab, ids);
  }

  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override {
    EVALRUN_CUDA(cudaSetDevice(device_));
    EVALRUN_CUDA(cudaStreamSynchronize(queue_->stream()));
    kv_->read(layer, position, sequence, k, v);
  }

  PhaseTimes phases() const override { return times_; }
  size_t kv_bytes_per_token() const override { return kv_->bytes_per_token(); }
  size_t kv_bytes() const override { return kv_->bytes(); }
  size_t workspace_bytes() const override {
    size_t bytes = kv_->row_bytes();
    for (const DeviceBuffer* b : buffers()) bytes += b->bytes();
    for (const DeviceBuffer* b : side_->buffers()) bytes += b->bytes();
    for (const DeviceBuffer* b : answer_buffers_.buffers()) bytes += b->bytes();
    return bytes;
  }

 private:
  size_t value_bytes() const { return bf16_ ? 2 : 4; }
  void wait() {
    queue_->wait();
    waited();
  }
  void waited() { commit_pending_ = under_way_ = computing_ = false; }
  // Products of their own wait at their end; one that failed half queued still reads its inputs.
  void begin_side() {
    EVALRUN_CUDA(cudaSetDevice(device_));
    if (under_way_) wait();
    under_way_ = true;
  }

  // --- room ------------------------------------------------------------------------------------

  std::vector<const DeviceBuffer*> buffers() const {
    return {&dense_sums_,
            &unpacked_,
            &record_device_,
            &embeddings_,
            &x_,
            &e_,
            &in_,
            &attn_in_,
            &ffn_in_,
            &sums_,
            &q_,
            &partial_,
            &workspace_.sums,
            &workspace_.counters,
            &logits_,
            &hidden_,
            &inner_,
            &outer_,
            &head_in_,
            &path_};
  }
  InputRows input_rows(DeviceBuffer& buffer, int rows, int width, bool bf16) {
    const int stride = bf16 ? padded_to(width, kBlock) : width;
    if (buffer.ensure(static_cast<size_t>(rows) * static_cast<size_t>(stride) * (bf16 ? 2 : 4)))
      moved_ = true;
    return {buffer.as<void>(), stride, bf16};
  }
  // Every buffer of a forward of this shape. What moves makes all graphs stale; where memory runs
  // out on the way, moved_ tells the next forward.
  void make_room(const StepShape& s, const AnswerShape& answers, size_t embedding_values,
                 size_t residual_values, int kept) {
    const int rows = rounded_size(s.rows, kLeastRows);
    const auto floats = [&](DeviceBuffer& b, size_t n) {
      if (b.ensure(n * sizeof(float))) moved_ = true;
    };
    const auto host_floats = [&](PinnedBuffer& b, size_t n) {
      if (b.ensure(n * sizeof(float))) moved_ = true;
    };
    const auto n = static_cast<size_t>(rows);
    const auto d = static_cast<size_t>(c_.d_model), vocab = static_cast<size_t>(c_.n_logits());
    const size_t record = record_bytes(s);
    if (record_device_.ensure(record)) moved_ = true;
    if (record_host_.ensure(record)) moved_ = true;
    host_floats(embeddings_host_, embedding_values);
    floats(embeddings_, embedding_values);
    floats(x_, n * d);
    if (c_.paired_input) floats(e_, n * d);
    layer_in_ = input_rows(in_, rows, std::max(c_.input_width(), c_.d_model), bf16_);
    o_in_ = input_rows(attn_in_, rows, c_.q_dim(), bf16_);
    down_in_ = input_rows(ffn_in_, rows, c_.d_ffn, bf16_);
    const auto widest = static_cast<size_t>(weights_->widest());
    floats(sums_, n * widest);
    if (dense_chunk(s)) {
      floats(dense_sums_, n * widest);
      const DeviceLayer& l = weights_->layer(0);
      size_t unpacked = 0;
      for (const DeviceMatrix* m : {&*l.qkv, &*l.o, &*l.gate_up, &*l.down})
        unpacked = std::max(unpacked, Dense::unpacked_bytes(m->ref()));
      if (unpacked_.ensure(unpacked)) moved_ = true;
    }
    const auto q = static_cast<size_t>(c_.n_heads) * static_cast<size_t>(head_stride_);
    if (q_.ensure(n * q * value_bytes())) moved_ = true;
    if (bf16_ && !s.at_once) {
      const size_t partial = partial_floats(rows, c_.n_heads, s.slots, head_stride_);
      floats(partial_,
             s.direct && s.rows > kSplitRows ? std::min(partial, kMostPromptPartial) : partial);
    }
    const int outputs = rounded_size(std::max(s.logits, s.answers), 1);
    if (s.logits + s.answers > 0) {
      head_rows_ = input_rows(head_in_, outputs, c_.d_model,
                              weights_->head().storage() != WeightStorage::kF32);
    }
    floats(logits_, static_cast<size_t>(s.logits) * vocab);
    host_floats(logits_host_, static_cast<size_t>(s.logits) * vocab);
    if (s.answers > 0 && answer_buffers_.make_room(answers)) moved_ = true;
    floats(hidden_, static_cast<size_t>(s.hidden) * d);
    host_floats(hidden_host_, static_cast<size_t>(s.hidden) * d);
    host_floats(residual_host_, residual_values);
    if (low_rank_ != nullptr) {
      floats(inner_, n * static_cast<size_t>(low_rank_->widest));
      const int inputs = std::max({c_.input_width(), c_.q_dim(), c_.d_ffn});
      floats(outer_, n * static_cast<size_t>(padded_to(inputs, kBlock)));
    }
    const auto workspace = [&](WeightStorage storage, int width, int of_rows) {
      if (workspace_.ensure(product_geometry(storage, width / kTile, kAnyBlocks, of_rows)))
        moved_ = true;
    };
    workspace(weights_->layer(0).o->storage(), weights_->widest(), rows);
    workspace(weights_->head().storage(), weights_->head().outputs(), outputs);
    if (low_rank_ != nullptr) workspace(low_rank_->storage, low_rank_->widest, rows);
    if (!s.direct && kv_->room_for_rows(kept + s.rows, kept > 0, queue_->stream())) moved_ = true;
    if (std::exchange(moved_, false)) graphs_.clear();
  }
  // --- one forward -----------------------------------------------------------------------------

  // Of the host's rows: none where they are on the device already.
  size_t embedding_bytes() const {
    const InputView& e = request_->embeddings;
    if (e.data == nullptr || e.computed) return 0;
    return static_cast<size_t>(e.rows) * static_cast<size_t>(e.cols) * sizeof(float);
  }

  // Everything a queue of launches depends on.
  const std::vector<int64_t>& key() {
    const StepShape& s = record_.shape();
    key_ = {s.rows,
            s.logits,
            s.hidden,
            s.answers,
            s.draws,
            answer_shape_.n_best,
            answer_shape_.sums,
            answer_shape_.top_k,
            std::bit_cast<int64_t>(answer_shape_.top_p),
            std::bit_cast<int64_t>(answer_shape_.inverse_temperature),
            dists_ == nullptr ? 0 : static_cast<int64_t>(dists_->id()),
            s.rejection_tests,
            s.more_draws,
            s.children,
            s.uniforms,
            s.visible,
            s.items,
            s.items_windowed,
            s.slots,
            s.direct,
            s.kv_only,
            s.at_once,
            static_cast<int64_t>(embedding_bytes()),
            request_->embeddings.computed
                ? static_cast<int64_t>(reinterpret_cast<intptr_t>(request_->embeddings.data))
                : 0,
            request_->prefix == nullptr ? -1 : request_->prefix->length,
            kv_->prefix_heads(),
            low_rank_ == nullptr ? 0 : low_rank_->id};
    for (const int l : request_->residual_layers) key_.push_back(l);
    key_.push_back(-1);
    if (request_->skip != nullptr)
      for (const auto* set : {&request_->skip->attention, &request_->skip->mlp}) {
        for (const bool skipped : *set) key_.push_back(skipped);
        key_.push_back(-1);
      }
    return key_;
  }

  void queue_forward() {
    const StepShape& s = record_.shape();
    const cudaStream_t stream = queue_->stream();
    const StepLayout layout = layout_of(s);
    const auto* block = record_device_.as<unsigned char>();
    rows_ = reinterpret_cast<const StepRow*>(block + layout.rows);
    header_ = reinterpret_cast<const StepHeader*>(block + layout.header);
    visible_ = reinterpret_cast<const int32_t*>(block + layout.visible);
    items_ = reinterpret_cast<const AttentionItem*>(block + layout.items);
    items_windowed_ = reinterpret_cast<const AttentionItem*>(block + layout.items_windowed);
    EVALRUN_CUDA(cudaMemcpyAsync(record_device_.as<void>(), record_host_.as<void>(), layout.bytes,
                                 cudaMemcpyHostToDevice, stream));
    if (embedding_bytes() > 0)
      EVALRUN_CUDA(cudaMemcpyAsync(embeddings_.as<void>(), embeddings_host_.as<void>(),
                                   embedding_bytes(), cudaMemcpyHostToDevice, stream));
    if (measure_) events_.begin(queue_->stream());
    const float* embeddings =
        request_->embeddings.computed ? request_->embeddings.data : embeddings_.as<float>();
    embed_rows(rows_, s.rows, weights_->embedding().ref(), embeddings, c_.input_width(), c_.d_model,
               x_.as<float>(), e_.as<float>(), stream);
    mark(&PhaseTimes::norms);
    for (int l = 0; l < c_.n_layers; ++l) {
      keep_residual(l);
      if (!skipped(&SkipSet::attention, l)) {
        attention_block(l);
        if (s.kv_only && l == c_.n_layers - 1) return;
      }
      if (!skipped(&SkipSet::mlp, l)) mlp_block(l);
    }
    keep_residual(c_.n_layers);
    outputs(layout);
  }

  bool skipped(const std::vector<bool> SkipSet::*set, int l) const {
    return request_->skip != nullptr && !(request_->skip->*set).empty() &&
           (request_->skip->*set)[static_cast<size_t>(l)];
  }
  void keep_residual(int l) {
    const size_t bytes =
        static_cast<size_t>(record_.shape().rows) * static_cast<size_t>(c_.d_model) * sizeof(float);
    for (size_t j = 0; j < request_->residual_layers.size(); ++j)
      if (request_->residual_layers[j] == l)
        EVALRUN_CUDA(cudaMemcpyAsync(residual_host_.as<unsigned char>() + j * bytes, x_.as<void>(),
                                     bytes, cudaMemcpyDeviceToHost, queue_->stream()));
  }

  void product(const DeviceMatrix& m, const InputRows& in, int rows, const Epilogue& e) {
    if (dense_chunk(record_.shape()) && m.storage() != WeightStorage::kF32) {
      // Sums go where they belong at once, where that is as wide as they are and nothing else is
      // done to them.
      float* to = e.residual != nullptr ? e.residual : e.y;
      const bool straight =
          to != nullptr && e.bias == nullptr && e.ldy == m.outputs() && e.outputs == m.outputs();
      dense_->multiply(m.ref(), in.data, rows, straight ? to : dense_sums_.as<float>(),
                       straight && e.residual != nullptr, unpacked_);
      if (straight) return;
      return finish_sums({m.ref(), in.data, rows, e}, dense_sums_.as<float>(), queue_->stream());
    }
    cuda::multiply({m.ref(), in.data, rows, e}, workspace_, queue_->stream());
  }
  // Chunks of a prompt, where there is work for cuBLAS. Depends on the chunk alone, so every method
  // prefills by the same calls.
  bool dense_chunk(const StepShape& s) const {
    return dense_ != nullptr && s.direct && s.rows >= kDenseRows;
  }
  // sums_ = m x, all outputs of the device matrix.
  void product_to_sums(const DeviceMatrix& m, const InputRows& in, const float* bias) {
    Epilogue e;
    e.y = sums_.as<float>(), e.ldy = e.outputs = m.outputs(), e.bias = bias;
    product(m, in, record_.shape().rows, e);
  }
  // x_ += m in + bias, with the low-rank update in between when there is one.
  void product_to_residual(const DeviceMatrix& m, const InputRows& in, int l, int group,
                           const float* bias) {
    if (low_rank_ == nullptr) {
      Epilogue e;
      e.residual = x_.as<float>(), e.ldy = e.outputs = c_.d_model, e.bias = bias;
      return product(m, in, record_.shape().rows, e);
    }
    product_to_sums(m, in, nullptr);
    UpdateJob job = update_of(l, group, in, m, bias);
    job.residual = x_.as<float>(), job.width = c_.d_model;
    update_rows(job, record_.shape().rows, queue_->stream());
  }
  // What makes of sums_, the product m in without its bias, what it is with the low-rank updates;
  // queues the product with their A.
  UpdateJob update_of(int l, int which, const InputRows& in, const DeviceMatrix& m,
                      const float* bias) {
    const int n = record_.shape().rows;
    UpdateJob job;
    job.rows = rows_, job.y = sums_.as<float>(), job.ldy = job.width = m.outputs();
    job.bias = bias;
    const auto& group = low_rank_->layers[static_cast<size_t>(l)][static_cast<size_t>(which)];
    if (group.a == nullptr) return job;
    const DeviceMatrix& a = *group.a;
    const bool bf16 = a.storage() != WeightStorage::kF32;
    InputRows outer = in;
    if (bf16 != in.bf16) {
      outer = {outer_.as<void>(), bf16 ? a.padded_in() : a.in(), bf16};
      convert_rows(in, a.in(), outer, n, queue_->stream());
    }
    Epilogue inner;
    inner.y = inner_.as<float>(), inner.ldy = inner.outputs = a.outputs();
    cuda::multiply({a.ref(), outer.data, n, inner}, workspace_, queue_->stream());
    job.inner = inner_.as<float>(), job.ld_inner = a.outputs();
    for (const DeviceLowRank::Part& part : group.parts) {
      LowRankPart& to = job.parts[job.n_parts];
      to.first = m.part(static_cast<size_t>(job.n_parts++));
      if (part.b == nullptr) continue;
      to.b = part.b->ref(), to.width = part.b->outputs();
      to.rank = part.rank, to.scale = part.scale, to.inner_at = part.inner_at;
    }
    return job;
  }

  void norm(const float* weights, const float* x, const InputRows& to, int at, int n) {
    NormJob job;
    job.x = x, job.d = c_.d_model, job.weights = weights, job.eps = c_.norm_eps;
    job.to = to, job.at = at;
    norm_rows(job, n, queue_->stream());
  }
  // layer_in_ with the padding of this matrix's width.
  InputRows input_of(const DeviceMatrix& m) const {
    return {layer_in_.data, bf16_ ? m.padded_in() : m.in(), bf16_};
  }

  void attention_block(int l) {
    const DeviceLayer& w = weights_->layer(l);
    const StepShape& s = record_.shape();
    const InputRows in = input_of(*w.qkv);
    if (c_.paired_input && w.embed_norm != nullptr) {
      norm(w.embed_norm, e_.as<float>(), in, 0, s.rows);
      norm(w.attn_norm, x_.as<float>(), in, c_.d_model, s.rows);
    } else {
      norm(w.attn_norm, x_.as<float>(), in, 0, s.rows);
    }
    mark(&PhaseTimes::norms);
    product_to_sums(*w.qkv, in, low_rank_ == nullptr ? w.qkv_bias : nullptr);
    if (low_rank_ != nullptr)
      update_rows(update_of(l, DeviceLowRank::kQkv, in, *w.qkv, w.qkv_bias), s.rows,
                  queue_->stream());
    mark(&PhaseTimes::weights);
    RotateJob rotate;
    rotate.header = header_, rotate.rows = rows_;
    rotate.y = sums_.as<float>(), rotate.ldy = w.qkv->outputs();
    rotate.q_at = w.qkv->part(0), rotate.k_at = w.qkv->part(1), rotate.v_at = w.qkv->part(2);
    rotate.q_norm = w.q_norm, rotate.k_norm = w.k_norm;
    rotate.eps = c_.norm_eps;
    rotate.cos = weights_->cos(), rotate.sin = weights_->sin();
    rotate.heads = c_.n_heads, rotate.kv_heads = c_.n_kv_heads;
    rotate.head_dim = c_.head_dim, rotate.head_stride = head_stride_;
    rotate.q = q_.as<void>(), rotate.cache = kv_->cache(l), rotate.step = kv_->rows(l);
    rotate.direct = s.direct, rotate.bf16 = bf16_;
    rotate_rows(rotate, s.rows, queue_->stream());
    mark(&PhaseTimes::norms);
    if (s.kv_only && l == c_.n_layers - 1) return;

    AttentionArguments a;
    a.header = header_, a.rows = rows_, a.visible = visible_;
    a.windowed = c_.layer_is_windowed(l);
    a.items = a.windowed ? items_windowed_ : items_;
    a.max_items = a.windowed ? s.items_windowed : s.items;
    a.cache = kv_->cache(l), a.step = kv_->rows(l);
    if (request_->prefix != nullptr) {
      a.prefix = kv_->prefix(l);
      a.prefix_length = request_->prefix->length;
      a.prefix_heads = kv_->prefix_heads();
    }
    a.n_rows = s.rows, a.heads = c_.n_heads, a.kv_heads = c_.n_kv_heads;
    a.head_dim = c_.head_dim, a.head_stride = head_stride_, a.slots = s.slots;
    a.q = q_.as<void>(), a.partial = partial_.as<float>();
    a.at_once = s.at_once;
    a.out = o_in_.data, a.out_stride = o_in_.stride;
    bf16_ ? attend_bf16(a, queue_->stream()) : attend_f32(a, queue_->stream());
    mark(&PhaseTimes::attention);
    product_to_residual(*w.o, o_in_, l, DeviceLowRank::kO, w.o_bias);
    mark(&PhaseTimes::weights);
  }

  void mlp_block(int l) {
    const DeviceLayer& w = weights_->layer(l);
    const int n = record_.shape().rows;
    const InputRows in = input_of(*w.gate_up);
    norm(w.ffn_norm, x_.as<float>(), in, 0, n);
    mark(&PhaseTimes::norms);
    if (low_rank_ == nullptr) {
      Epilogue e;
      e.activated = down_in_.data, e.ldy = down_in_.stride, e.outputs = c_.d_ffn;
      e.bias = w.gate_up_bias;
      product(*w.gate_up, in, n, e);
    } else {
      product_to_sums(*w.gate_up, in, nullptr);
      UpdateJob job = update_of(l, DeviceLowRank::kGateUp, in, *w.gate_up, w.gate_up_bias);
      job.joint = Joint::kTurns, job.activated = down_in_, job.width = c_.d_ffn;
      update_rows(job, n, queue_->stream());
    }
    product_to_residual(*w.down, down_in_, l, DeviceLowRank::kDown, w.down_bias);
    mark(&PhaseTimes::weights);
  }

  void outputs(const StepLayout& layout) {
    const StepShape& s = record_.shape();
    const auto* block = record_device_.as<unsigned char>();
    const auto list = [&](size_t at) { return reinterpret_cast<const int32_t*>(block + at); };
    NormJob job;
    job.x = x_.as<float>(), job.d = c_.d_model, job.weights = weights_->final_norm(),
    job.eps = c_.norm_eps;
    if (s.hidden > 0) {
      job.index = list(layout.hidden_rows), job.hidden = hidden_.as<float>();
      job.to = {nullptr, 0, bf16_};
      norm_rows(job, s.hidden, queue_->stream());
      to_host(hidden_host_, hidden_,
              static_cast<size_t>(s.hidden) * static_cast<size_t>(c_.d_model));
      job.hidden = nullptr;
    }
    const auto vocab = static_cast<size_t>(c_.n_logits());
    const auto head = [&](const int32_t* index, int rows, float* logits) {
      job.index = index, job.to = head_rows_;
      norm_rows(job, rows, queue_->stream());
      Epilogue e;
      e.y = logits, e.ldy = e.outputs = c_.n_logits();
      cuda::multiply({weights_->head().ref(), head_rows_.data, rows, e}, workspace_,
                     queue_->stream());
    };
    if (s.answers > 0) {
      head(list(layout.answer_rows), s.answers, answer_buffers_.logits());
      const auto doubles = [&](size_t at) { return reinterpret_cast<const double*>(block + at); };
      AnswerInputs in;
      in.uniforms = doubles(layout.uniforms);
      if (dists_ != nullptr) {
        in.tasks = reinterpret_cast<const AnswerTask*>(block + layout.tasks);
        in.children = list(layout.children), in.further_uniforms = doubles(layout.further);
        in.dists = dists_->memory();
      }
      answer_buffers_.queue(answer_shape_, in, queue_->stream());
    }
    if (s.logits > 0) {
      head(list(layout.logit_rows), s.logits, logits_.as<float>());
      if (s.logits <= kFewLogits)
        to_host(logits_host_, logits_, static_cast<size_t>(s.logits) * vocab);
    }
    mark(&PhaseTimes::head);
  }
  AnswerShape answer_shape(int n_best) const {
    const StepShape& s = record_.shape();
    AnswerShape shape;
    if (s.answers == 0) return shape;
    shape.rows = s.answers, shape.n_logits = c_.n_logits();
    if (n_best > 0) shape.n_best = n_best, shape.sums = request_->log_sums;
    if (!s.draws) return shape;
    shape.draws = true;
    shape.inverse_temperature = inverse_temperature(*request_->sampling);
    shape.top_k = request_->sampling->top_k, shape.top_p = request_->sampling->top_p;
    shape.tasks = s.tasks, shape.rejection_tests = s.rejection_tests,
    shape.more_draws = s.more_draws;
    return shape;
  }
  void read_answer(int i, int32_t row, Answers& answers) {
    const Row& asked = request_->rows[static_cast<size_t>(row)];
    answer_buffers_.read(answer_shape_, i, best_);
    if (asked.top) answers.set_top(row, best_.front().token);
    if (asked.best)
      answers.add_best(row, best_,
                       answer_shape_.sums ? answer_buffers_.log_sum(answer_shape_, i) : 0);
    if (asked.uniform >= 0) answers.set_drawn(row, answer_buffers_.drawn(answer_shape_, i));
    const AnswerTask task = record_.task(i);
    if (task.kind == AnswerTask::kDraws) {
      answers.set_weight(row, answer_buffers_.drawn_mass(answer_shape_, i));
      for (int j = 0; j <= task.count; ++j)
        answers.add_drawn_token(answer_buffers_.drawn_token(answer_shape_, i, j));
    } else if (task.kind != AnswerTask::kNone) {
      answers.set_passed(row, answer_buffers_.passed(answer_shape_, i));
    }
  }
  void to_host(PinnedBuffer& to, const DeviceBuffer& from, size_t values) {
    EVALRUN_CUDA(cudaMemcpyAsync(to.as<void>(), from.as<void>(), values * sizeof(float),
                                 cudaMemcpyDeviceToHost, queue_->stream()));
  }

  void mark(double PhaseTimes::*phase) {
    if (measure_) events_.mark(phase, queue_->stream());
  }

  std::shared_ptr<const Model> model_;
  const ModelConfig& c_;
  const int device_;
  const std::string isa_;  // "sm_90", as session options resolve it
  const bool measure_, kv_cache_;
  const bool bf16_;  // inputs, keys and values; float32 with f32 weights
  std::optional<Queue> queue_;
  int head_stride_ = 0;
  bool graphs_wanted_ = true;
  std::optional<DeviceModel> weights_;
  std::optional<KvMemory> kv_;
  LowRankStore low_ranks_;
  std::optional<SideProducts> side_;
  AnswerBuffers answer_buffers_;

  // Of the forward under way.
  StepRecord record_;
  const ForwardRequest* request_ = nullptr;
  AnswerShape answer_shape_;
  const DeviceLowRank* low_rank_ = nullptr;
  const DeviceDistributions* dists_ = nullptr;  // of tasks, if there are any
  const StepRow* rows_ = nullptr;
  const StepHeader* header_ = nullptr;
  const int32_t* visible_ = nullptr;
  const AttentionItem *items_ = nullptr, *items_windowed_ = nullptr;
  bool direct_ = false, commit_pending_ = false, under_way_ = false, moved_ = false;
  bool computing_ = false;  // a program is queued, and reads what it was given
  std::vector<int64_t> key_;
  GraphCache graphs_;
  std::unique_ptr<Dense> dense_;

  PinnedBuffer record_host_, embeddings_host_, logits_host_, hidden_host_, residual_host_,
      path_host_;
  DeviceBuffer record_device_, embeddings_, x_, e_, in_, attn_in_, ffn_in_, sums_, q_, partial_,
      logits_, hidden_, inner_, outer_, head_in_, path_, dense_sums_, unpacked_;
  ProductWorkspace workspace_;
  InputRows layer_in_, o_in_, down_in_, head_rows_;
  std::vector<MatrixView> residual_views_;
  std::vector<TokenLogit> best_;
  std::vector<bool> fetched_;  // rows of logits_host_

  PhaseEvents events_;
  PhaseTimes times_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<const Model> model,
                                           const SessionOptions& options) {
  const size_t colon = options.device.find(':');
  const int device = colon == std::string::npos ? 0 : std::atoi(options.device.c_str() + colon + 1);
  return std::make_unique<CudaBackend>(std::move(model), options, device);
}

}  // namespace evalrun::engine
