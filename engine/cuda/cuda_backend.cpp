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
// StepBuffers has the memory, LayerQueue queues up to the last layer, AnswerReader the rest; here
// is what holds them together: when to wait, and when a graph serves.
#include <bit>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "engine/backend.h"
#include "engine/cuda/answer_reader.h"
#include "engine/cuda/device_distributions.h"
#include "engine/cuda/device_session.h"
#include "engine/cuda/forward_step.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/layer_queue.h"
#include "engine/cuda/memory_plan.h"
#include "engine/cuda/runtime/graphs.h"
#include "engine/cuda/side_products.h"
#include "engine/cuda/step_buffers.h"

namespace evalrun::engine {
namespace {

using namespace cuda;  // NOLINT: this file is its backend

bool wants_graphs() {
  const char* graphs = std::getenv("EVALRUN_CUDA_GRAPHS");
  return graphs == nullptr || std::string_view(graphs) != "0";
}

class CudaBackend final : public Backend, public LogitSource {
 public:
  CudaBackend(std::shared_ptr<const Model> model, const SessionOptions& options, int device);
  ~CudaBackend() override;

  std::string isa() const override { return isa_; }
  int n_threads() const override { return 1; }
  bool answers() const override { return true; }
  int prefill_chunk() const override { return kPromptChunk; }
  bool prefills_together() const override { return false; }

  void forward(const ForwardPlan& plan, const ForwardRequest& request, ForwardResult& result,
               Answers& answers) override;
  void fetch(int slot) override;
  void commit(std::span<const CommitRow> rows) override;
  void copy_sequence(int from, int to, int length) override;
  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override;

  // It does not wait: the forward, score or draw after it does.
  InputView compute(const RowProgram& program, int result) override;
  MatrixView multiply(const WeightMatrix& w, InputView x) override;
  Scores best_of(Heads heads, InputView x, int n_best) override;
  std::span<const int32_t> draw(Heads heads, InputView x, const DistributionDraws& draws) override;
  std::unique_ptr<DistributionStore> make_distributions(int slots, int vocab,
                                                        std::span<const int32_t> ids) override;

  PhaseTimes phases() const override { return times_; }
  size_t kv_bytes_per_token() const override { return session_.kv.bytes_per_token(); }
  size_t kv_bytes() const override { return session_.kv.bytes(); }
  size_t workspace_bytes() const override;

 private:
  // A call that throws waits for what it has queued: what its caller lent it (a drafter's matrices,
  // distributions) may go then.
  class Calling {
   public:
    explicit Calling(CudaBackend& backend) : backend_(backend) {
      EVALRUN_CUDA(cudaSetDevice(backend.session_.device));
    }
    ~Calling() {
      if (std::uncaught_exceptions() > before_ &&
          cudaStreamSynchronize(backend_.session_.stream()) == cudaSuccess)
        backend_.waited();
    }
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;

   private:
    CudaBackend& backend_;
    const int before_ = std::uncaught_exceptions();
  };

  void wait();
  // The queue has run.
  void waited() {
    commit_pending_ = under_way_ = computing_ = false;
    graphs_.waited(), side_.waited();
  }
  void begin_side();
  void start_step(const ForwardPlan& plan, const ForwardRequest& request, int n_best);
  StepOptions step_options(const ForwardPlan& plan, const ForwardRequest& request) const;
  void make_room(const StepShape& shape, const AnswerShape& answers,
                 const StepBuffers::Extras& extras);
  bool as_graph() const;
  const GraphCache::Key& graph_key();
  void queue_forward();

  const std::shared_ptr<const Model> model_;
  const std::string isa_;  // "sm_90", as session options resolve it
  const bool graphs_wanted_, kv_cache_;
  DeviceSession session_;
  LowRankStore low_ranks_;
  SideProducts side_;
  StepBuffers buffers_;
  LayerQueue layers_;
  AnswerReader reader_;

  ForwardStep step_;  // the last one
  GraphCache graphs_;
  GraphCache::Key key_;
  PinnedBuffer commits_host_;  // rows to commit, of all sequences
  DeviceBuffer commits_;
  bool direct_ = false;  // the last forward wrote to the cache
  bool commit_pending_ = false, under_way_ = false;
  bool computing_ = false;  // a program is queued, and reads what it was given
  PhaseTimes times_;
};

CudaBackend::CudaBackend(std::shared_ptr<const Model> model, const SessionOptions& options,
                         int device)
    : model_(std::move(model)),
      isa_(options.isa),
      graphs_wanted_(wants_graphs()),
      kv_cache_(options.kv_cache),
      session_(*model_, options, device),
      side_(graphs_wanted_),
      buffers_(session_),
      layers_(session_, buffers_),
      reader_(session_, buffers_) {
  const PlannedShapes planned = planned_shapes(session_.c, options.max_tokens, session_.bf16);
  make_room(planned.prefill, {}, {});
  make_room(planned.step, planned.answers, {});
  commits_host_.ensure(kPlannedRows * sizeof(CommitRow));
  commits_.ensure(kPlannedRows * sizeof(CommitRow));
}

CudaBackend::~CudaBackend() {
  (void)cudaSetDevice(session_.device);
  (void)cudaStreamSynchronize(session_.stream());
}

// --- one forward ---------------------------------------------------------------------------------

void CudaBackend::forward(const ForwardPlan& plan, const ForwardRequest& request,
                          ForwardResult& result, Answers& answers) {
  const Calling calling(*this);
  if (under_way_) wait();  // one that failed, and failed to wait: it reads what is written below
  start_step(plan, request, answers.n_best());
  under_way_ = true;
  session_.queue.begin();
  if (as_graph())
    graphs_.run(graph_key(), graphs_wanted_, session_.stream(), [this] { queue_forward(); });
  else
    queue_forward();
  wait();
  direct_ = step_.shape().direct;
  reader_.read(step_, plan, result, answers);
  if (!AnswerReader::sends_logits(step_.shape())) result.source = this;
  if (session_.measure) times_ = session_.events.times();
}

// What the queue copies to the device, in the host's memory; and room for all of it.
void CudaBackend::start_step(const ForwardPlan& plan, const ForwardRequest& request, int n_best) {
  DeviceSession& s = session_;
  step_.request = &request;
  step_.record.build(plan, request, step_options(plan, request));
  const StepShape& shape = step_.shape();
  step_.dists = shape.tasks ? &dists_on(*request.dists, s.device) : nullptr;
  step_.answers = answer_shape(shape, request, n_best, s.c.n_logits());
  step_.low_rank = request.low_rank == nullptr
                       ? nullptr
                       : &low_ranks_.get(*request.low_rank, s.device, s.stream());
  if (request.prefix != nullptr && s.kv.load_prefix(*request.prefix, s.stream())) graphs_.clear();
  const size_t embedding_bytes = step_.embedding_bytes();
  make_room(shape, step_.answers,
            {.embedding_values = embedding_bytes / sizeof(float),
             .residual_values = request.residual_layers.size() * static_cast<size_t>(shape.rows) *
                                static_cast<size_t>(s.c.d_model),
             .kept = step_.record.header().kept,
             .low_rank = step_.low_rank});
  step_.record.write(plan, buffers_.record_host.as<unsigned char>());
  if (embedding_bytes > 0)
    std::memcpy(buffers_.embeddings_host.as<void>(), request.embeddings.data, embedding_bytes);
}

StepOptions CudaBackend::step_options(const ForwardPlan& plan,
                                      const ForwardRequest& request) const {
  const ModelConfig& c = session_.c;
  const PrefixBank* prefix = request.prefix;
  StepOptions o;
  o.group = c.n_heads / c.n_kv_heads;
  o.sliding_window = c.sliding_window;
  o.items = session_.bf16;
  o.prefix_length = prefix == nullptr ? 0 : prefix->length;
  o.prefix_per_head = prefix != nullptr && prefix->heads == c.n_heads && o.group > 1;
  if (session_.bf16 && plan.prefill() && prefix == nullptr) {
    const PlanRow& last = plan.rows().back();
    o.at_once = attends_at_once(plan.n_rows(), last.context + last.visible_count, c.n_heads,
                                c.n_kv_heads, session_.head_stride);
  }
  return o;
}

void CudaBackend::make_room(const StepShape& shape, const AnswerShape& answers,
                            const StepBuffers::Extras& extras) {
  if (buffers_.make_room(shape, answers, extras)) graphs_.clear();
}

// Not with events between the phases; and not for chunks of prompts, where one would be made
// within the prefill of whoever meets a length first, a drafter's, too. But without a cache whole
// chunks are met in every step.
bool CudaBackend::as_graph() const {
  const StepShape& s = step_.shape();
  return !session_.measure && !(s.direct && (kv_cache_ || s.rows < kPromptChunk)) &&
         step_.request->embeddings.rows <= SideProducts::kGraphRows;
}

// Everything a queue of launches depends on.
const GraphCache::Key& CudaBackend::graph_key() {
  const ForwardRequest& request = *step_.request;
  const StepShape& s = step_.shape();
  const AnswerShape& a = step_.answers;
  key_ = {s.rows,
          s.logits,
          s.hidden,
          s.answers,
          s.draws,
          a.n_best,
          a.sums,
          a.top_k,
          std::bit_cast<int64_t>(a.top_p),
          std::bit_cast<int64_t>(a.inverse_temperature),
          a.noise,
          step_.dists == nullptr ? 0 : static_cast<int64_t>(step_.dists->id()),
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
          static_cast<int64_t>(step_.embedding_bytes()),
          request.embeddings.computed
              ? static_cast<int64_t>(reinterpret_cast<intptr_t>(request.embeddings.data))
              : 0,
          request.prefix == nullptr ? -1 : request.prefix->length,
          session_.kv.prefix_heads(),
          step_.low_rank == nullptr ? 0 : step_.low_rank->id};
  for (const int l : request.residual_layers) key_.push_back(l);
  key_.push_back(-1);
  if (request.skip != nullptr)
    for (const auto* set : {&request.skip->attention, &request.skip->mlp}) {
      for (const bool skipped : *set) key_.push_back(skipped);
      key_.push_back(-1);
    }
  return key_;
}

void CudaBackend::queue_forward() {
  if (layers_.queue(step_)) reader_.queue(step_);
}

void CudaBackend::fetch(int slot) {
  if (reader_.has_logits(slot)) return;
  const Calling calling(*this);
  session_.queue.begin();
  reader_.queue_logits(slot);
  wait();
  reader_.logits_came(slot);
}

void CudaBackend::wait() {
  session_.queue.wait();
  waited();
}

// --- sequences -----------------------------------------------------------------------------------

void CudaBackend::commit(std::span<const CommitRow> rows) {
  if (direct_ || rows.empty()) return;  // a prefill chunk is where it belongs
  const Calling calling(*this);
  if (commit_pending_) wait();  // the list is still being read
  const size_t bytes = rows.size_bytes();
  commits_host_.ensure(bytes), commits_.ensure(bytes);
  std::memcpy(commits_host_.as<void>(), rows.data(), bytes);
  session_.queue.begin();
  EVALRUN_CUDA(cudaMemcpyAsync(commits_.as<void>(), commits_host_.as<void>(), bytes,
                               cudaMemcpyHostToDevice, session_.stream()));
  session_.kv.commit(commits_.as<CommitRow>(), static_cast<int>(rows.size()), session_.stream());
  session_.queue.end();
  commit_pending_ = true;
}

void CudaBackend::copy_sequence(int from, int to, int length) {
  const Calling calling(*this);
  session_.queue.begin();
  session_.kv.copy_sequence(from, to, length, session_.stream());
  session_.queue.end();
}

void CudaBackend::read_kv(int layer, int position, int sequence, std::span<float> k,
                          std::span<float> v) const {
  EVALRUN_CUDA(cudaSetDevice(session_.device));
  EVALRUN_CUDA(cudaStreamSynchronize(session_.stream()));
  session_.kv.read(layer, position, sequence, k, v);
}

size_t CudaBackend::workspace_bytes() const {
  size_t bytes = session_.kv.row_bytes() + buffers_.device_bytes() + commits_.bytes();
  for (const DeviceBuffer* b : side_.buffers()) bytes += b->bytes();
  return bytes;
}

// --- products beside the model -------------------------------------------------------------------

InputView CudaBackend::compute(const RowProgram& program, int result) {
  const Calling calling(*this);
  if (under_way_ || computing_) wait();
  computing_ = true;
  return side_.compute(program, result, session_.weights.embedding(), session_.device,
                       session_.queue);
}

// The others wait at their end; one that failed, and failed to wait, still reads its inputs.
void CudaBackend::begin_side() {
  if (under_way_) wait();
  under_way_ = true;
}

MatrixView CudaBackend::multiply(const WeightMatrix& w, InputView x) {
  const Calling calling(*this);
  begin_side();
  const MatrixView y = side_.multiply(w, x, session_.device, session_.queue);
  waited();
  return y;
}

Scores CudaBackend::best_of(Heads heads, InputView x, int n_best) {
  const Calling calling(*this);
  begin_side();
  Scores scores = side_.best_of(heads, x, n_best, session_.device, session_.queue);
  waited();
  return scores;
}

std::span<const int32_t> CudaBackend::draw(Heads heads, InputView x,
                                           const DistributionDraws& draws) {
  const Calling calling(*this);
  begin_side();
  const auto tokens = side_.draw(heads, x, draws, session_.device, session_.queue);
  waited();
  return tokens;
}

std::unique_ptr<DistributionStore> CudaBackend::make_distributions(int slots, int vocab,
                                                                   std::span<const int32_t> ids) {
  return std::make_unique<DeviceDistributions>(session_.device, slots, vocab, ids);
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<const Model> model,
                                           const SessionOptions& options) {
  return std::make_unique<CudaBackend>(std::move(model), options, device_index(options.device));
}

}  // namespace evalrun::engine
