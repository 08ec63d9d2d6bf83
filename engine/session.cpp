#include "engine/session.h"

#include <algorithm>

#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/cache_memory.h"
#include "engine/devices.h"
#include "engine/feature_store.h"
#include "engine/row_program.h"
#include "engine/sampling_arith.h"
#include "engine/sequences.h"
#include "engine/session_options.h"
#include "engine/trace.h"

namespace evalrun::engine {
namespace {

class SessionImpl final : public Session {
 public:
  SessionImpl(std::shared_ptr<const Model> model, SessionOptions options);

  const Model& model() const override { return *model_; }
  const SessionOptions& options() const override { return options_; }
  std::string isa() const override { return backend_->isa(); }
  int n_threads() const override { return backend_->n_threads(); }
  bool draws_cheaply() const override { return backend_->answers(); }
  std::unique_ptr<DistributionStore> make_distributions(int slots, int vocab,
                                                        std::span<const int32_t> ids) override;

  int length(int sequence) const override { return sequences_.at(sequence).length; }
  int free_tokens(int sequence) const override { return sequences_.free_tokens(sequence); }
  void prefill(std::span<const SequenceTokens> parts) override;
  ForwardResult forward(const ForwardRequest& given) override;
  void commit(std::span<const SequencePath> paths) override;
  void rewind(int length, int sequence) override;
  void fork(int from, int to) override;

  void keep_features(const FeatureSet& set) override { features_.keep(set); }
  MatrixView hidden_features(int sequence) const override {
    return features_.hidden(sequence, length(sequence));
  }
  MatrixView residual_features(int index, int sequence) const override {
    return features_.residual(index, sequence, length(sequence));
  }

  MatrixView head(InputView hidden) override { return multiply(model_->head(), hidden); }
  MatrixView multiply(const WeightMatrix& w, InputView x) override;
  InputView compute(const RowProgram& program, int result) override;
  Scores score(Heads heads, InputView x, int n_best) override;
  std::span<const int32_t> draw(Heads heads, InputView x, const DistributionDraws& draws) override;

  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override;
  PhaseTimes phases() const override { return backend_->phases(); }
  size_t bytes_per_forward(int context) const override {
    return model_->streamed_bytes() + static_cast<size_t>(context) * backend_->kv_bytes_per_token();
  }
  size_t kv_bytes() const override { return backend_->kv_bytes(); }
  size_t workspace_bytes() const override { return backend_->workspace_bytes(); }
  WeightPlacement weight_placement() const override { return backend_->weight_placement(); }

 private:
  // What only this session knows of a request; the rest: check_request().
  void check_state(const ForwardRequest& request) const;
  void check_committed_alone(std::span<const int> path) const;
  // Keys and values of parts_, which are used up: chunk by chunk, of all sequences in turn.
  void compute_parts();
  // Of chunks_, the next one of some sequences.
  void compute_chunks();
  // On the host, [x.rows, vocabulary].
  MatrixView logits(Heads heads, InputView x);

  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  Sequences sequences_;
  std::unique_ptr<Backend> backend_;  // reads their blocks
  std::vector<bool> committed_;
  Answers answers_;
  HostScores host_scores_;
  std::vector<float> head_logits_;  // [heads, vocabulary]
  FeatureStore features_;
  ForwardPlan plan_, chunk_plan_;
  std::vector<PrefillPart> parts_, chunks_;
  std::vector<SequenceLength> wanted_;
  std::vector<CommitRow> commit_rows_;
  SkipSet plan_skip_;
  bool have_plan_ = false;
};

SessionImpl::SessionImpl(std::shared_ptr<const Model> model, SessionOptions options)
    : model_(std::move(model)),
      options_(std::move(options)),
      sequences_(options_),
      committed_(static_cast<size_t>(options_.n_sequences)),
      features_(model_->config(), options_.n_sequences, options_.max_tokens) {
  backend_ = is_gpu(options_.device) ? make_cuda_backend(model_, options_)
             : options_.isa == "reference"
                 ? make_reference_backend(model_, options_)
                 : make_cpu_backend(model_, options_, sequences_.blocks());
  sequences_.reserve();
  const auto n = static_cast<size_t>(options_.n_sequences);
  parts_.reserve(n), chunks_.reserve(n), wanted_.reserve(n);
  commit_rows_.reserve(kMaxRows);
}

std::unique_ptr<DistributionStore> SessionImpl::make_distributions(int slots, int vocab,
                                                                   std::span<const int32_t> ids) {
  EVALRUN_CHECK(slots >= 1 && vocab >= 1 && static_cast<size_t>(vocab) < kMaxSampledVocab,
                "{} distributions over {} tokens", slots, vocab);
  for (const int32_t id : ids) EVALRUN_CHECK(id >= 0 && id < vocab, "id {} of {}", id, vocab);
  return backend_->make_distributions(slots, vocab, ids);
}

// --- tokens of a sequence -----------------------------------------------------------------------

void SessionImpl::prefill(std::span<const SequenceTokens> parts) {
  const Span span("prefill");
  wanted_.clear(), parts_.clear();
  for (const auto& [sequence, tokens] : parts) {
    const Sequence& s = sequences_.at(sequence);
    if (s.length + static_cast<int64_t>(tokens.size()) > options_.max_tokens)
      throw base::usage_error(fmt::format("{} tokens do not fit after {}: the session holds {}",
                                          tokens.size(), s.length, options_.max_tokens),
                              "shorten the prompt or create the session with more tokens");
    for (const int32_t t : tokens)
      EVALRUN_CHECK(t >= 0 && t < model_->config().vocab_size, "token {} is not in the vocabulary",
                    t);
    EVALRUN_CHECK(s.skip_from == s.length, "prefill after rows committed under a skip set");
    wanted_.push_back({sequence, s.length + static_cast<int>(tokens.size())});
    parts_.push_back({tokens, sequence, s.length});
  }
  EVALRUN_CHECK(!model_->config().paired_input, "this drafter takes features, not tokens");
  sequences_.make_room(wanted_);
  have_plan_ = false;
  if (options_.kv_cache) compute_parts();
  for (const auto& [sequence, tokens] : parts) {
    Sequence& s = sequences_.at(sequence);
    if (!options_.kv_cache) s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    s.length += static_cast<int>(tokens.size());
    s.skip_from = s.length;
  }
}

void SessionImpl::compute_parts() {
  const int chunk = backend_->prefill_chunk();
  const size_t most_rows = backend_->prefills_together() ? kMaxRows : 0;
  chunks_.clear();
  for (bool more = true; more;) {
    more = false;
    size_t rows = 0;
    for (PrefillPart& p : parts_) {
      if (p.tokens.empty()) continue;
      const size_t to_border = static_cast<size_t>(chunk - p.length % chunk);
      const size_t n = std::min(to_border, p.tokens.size());
      if (rows + n > most_rows) compute_chunks(), rows = 0;
      chunks_.push_back({p.tokens.first(n), p.sequence, p.length});
      rows += n;
      p.tokens = p.tokens.subspan(n);
      p.length += static_cast<int>(n);
      more = more || !p.tokens.empty();
    }
    compute_chunks();  // a sequence's next chunk finds this one in the cache
  }
}

void SessionImpl::compute_chunks() {
  if (chunks_.empty()) return;
  chunk_plan_.build_prefill(chunks_, features_.set().hidden, !features_.needs_last_layer());
  ForwardRequest request;
  request.residual_layers = features_.set().residual_layers;
  ForwardResult result;
  backend_->forward(chunk_plan_, request, result, answers_);
  commit_rows_.clear();
  for (const PlanRow& r : chunk_plan_.rows())
    commit_rows_.push_back({static_cast<int32_t>(commit_rows_.size()), r.sequence, r.position});
  backend_->commit(commit_rows_);
  int first = 0;
  for (const PrefillPart& c : chunks_) {
    const int n = static_cast<int>(c.tokens.size());
    if (!features_.empty()) features_.keep_chunk(result, first, n, c.sequence, c.length);
    first += n;
  }
  chunks_.clear();
}

void SessionImpl::check_state(const ForwardRequest& request) const {
  if (request.extend) {
    EVALRUN_CHECK(options_.kv_cache && have_plan_, "nothing to extend: no forward came before");
    for (const bool committed : committed_)
      EVALRUN_CHECK(!committed, "rows stay only until some of them are committed");
  }
  static const SkipSet kNone;
  const SkipSet& skip = request.skip == nullptr ? kNone : *request.skip;
  for (const Row& r : request.rows) {
    const Sequence& s = sequences_.at(r.sequence);
    EVALRUN_CHECK(s.skip_from == s.length || s.skip == skip,
                  "sequence {} holds rows committed under another skip set: rewind to {} first",
                  r.sequence, s.skip_from);
  }
}

ForwardResult SessionImpl::forward(const ForwardRequest& given) {
  const Span span("forward");
  check_state(given);
  check_request(given, model_->config());
  const ForwardRequest request = features_.empty() ? given : features_.with_features(given);
  if (!options_.kv_cache) {
    parts_.clear();
    for (int i = 0; i < sequences_.size(); ++i)
      if (std::ranges::any_of(request.rows, [&](const Row& r) { return r.sequence == i; }))
        parts_.push_back({sequences_.at(i).tokens, i, 0});
    compute_parts();
  }
  have_plan_ = false;
  plan_.build(request, sequences_.lengths(), options_.max_tokens, model_->config(),
              backend_->answers());
  have_plan_ = true;
  std::fill(committed_.begin(), committed_.end(), false);
  if (request.skip != nullptr) {
    plan_skip_ = *request.skip;
  } else {  // keeps its memory: drafting by skipping takes turns with whole forwards
    plan_skip_.attention.clear();
    plan_skip_.mlp.clear();
  }
  answers_.begin(request, model_->config().n_logits());
  ForwardResult result;
  backend_->forward(plan_, request, result, answers_);
  result.logits_of = plan_.logits_of();
  result.hidden_of = plan_.hidden_of();
  for (const int32_t row : plan_.logit_rows())
    answers_.answer(request, row, result.logits_row(row));
  answers_.publish(result);
  if (!features_.empty()) features_.take(result, given.residual_layers.size());
  return result;
}

void SessionImpl::commit(std::span<const SequencePath> paths) {
  EVALRUN_CHECK(have_plan_, "commit without a forward");
  wanted_.clear(), commit_rows_.clear();
  for (const auto& [sequence, path] : paths) {
    int position = length(sequence);
    EVALRUN_CHECK(!committed_[static_cast<size_t>(sequence)], "sequence {} was committed already",
                  sequence);
    sequences_.check_path(plan_, path, sequence);
    if (!options_.kv_cache) check_committed_alone(path);
    for (const int row : path) commit_rows_.push_back({row, sequence, position++});
    wanted_.push_back({sequence, position});
  }
  sequences_.make_room(wanted_);
  if (options_.kv_cache) backend_->commit(commit_rows_);
  for (const auto& [sequence, path] : paths) {
    Sequence& s = sequences_.at(sequence);
    if (!options_.kv_cache)
      for (const int row : path)
        s.tokens.push_back(plan_.all_rows()[static_cast<size_t>(row)].token);
    if (!features_.empty()) features_.keep_rows(path, sequence, s.length);
    s.length += static_cast<int>(path.size());
    if (plan_skip_.empty())
      s.skip_from = s.length;
    else
      s.skip = plan_skip_;
    committed_[static_cast<size_t>(sequence)] = true;
  }
}

// Without a KV cache, rows are computed again from their tokens alone.
void SessionImpl::check_committed_alone(std::span<const int> path) const {
  for (const int row : path) {
    const PlanRow& r = plan_.all_rows()[static_cast<size_t>(row)];
    EVALRUN_CHECK(r.token >= 0, "a session without KV cache commits tokens, not embeddings");
    EVALRUN_CHECK(!r.prefix && !r.low_rank && plan_skip_.empty(),
                  "a session without KV cache commits plain rows only");
  }
}

void SessionImpl::rewind(int length, int sequence) {
  sequences_.rewind(length, sequence);
  features_.rewind(length, sequence);
  have_plan_ = false;
}

void SessionImpl::fork(int from, int to) {
  if (from == to) return;
  const SequenceLength wanted{to, length(from)};
  sequences_.make_room({&wanted, 1});
  if (options_.kv_cache) backend_->copy_sequence(from, to, wanted.length);
  sequences_.fork(from, to);
  features_.fork(from, to);
  have_plan_ = false;
}

// --- products beside the model's own ------------------------------------------------------------

void check_heads(Heads heads, const InputView& x) {
  EVALRUN_CHECK(x.rows >= 1 && (heads.size() == 1 || heads.size() == static_cast<size_t>(x.rows)),
                "{} heads of {} rows", heads.size(), x.rows);
  for (const WeightMatrix* w : heads)
    EVALRUN_CHECK(
        x.cols == w->in() && w->out() == heads[0]->out() &&
            (w->storage() == WeightStorage::kF32) == (heads[0]->storage() == WeightStorage::kF32),
        "a head of {} x {} beside one of {} x {}, rows of {} values", w->out(), w->in(),
        heads[0]->out(), heads[0]->in(), x.cols);
}

MatrixView SessionImpl::multiply(const WeightMatrix& w, InputView x) {
  EVALRUN_CHECK(x.cols == w.in() && x.rows >= 1, "a product with rows of {} values, not {}", w.in(),
                x.cols);
  const Span span("multiply");
  return backend_->multiply(w, x);
}

InputView SessionImpl::compute(const RowProgram& program, int result) {
  EVALRUN_CHECK(result >= 0 && static_cast<size_t>(result) < program.values().size() &&
                    !program.steps().empty(),
                "a program without its result");
  for (const int32_t token : program.tokens())
    EVALRUN_CHECK(token >= 0 && token < model_->config().vocab_size,
                  "token {} is not in the vocabulary", token);
  for (const RowProgram::Step& step : program.steps())
    EVALRUN_CHECK(step.op != RowProgram::Op::kEmbed || step.cols == model_->config().d_model,
                  "token rows of {} values, not {}", step.cols, model_->config().d_model);
  const Span span("compute");
  return backend_->compute(program, result);
}

MatrixView SessionImpl::logits(Heads heads, InputView x) {
  if (heads.size() == 1) return backend_->multiply(*heads[0], x);
  const auto width = static_cast<size_t>(heads[0]->out());
  head_logits_.resize(heads.size() * width);
  for (size_t i = 0; i < heads.size(); ++i) {
    InputView row = x;
    row.data = x.row(static_cast<int>(i)).data(), row.rows = 1;
    const MatrixView y = backend_->multiply(*heads[i], row);
    std::ranges::copy(y.row(0), head_logits_.begin() + static_cast<ptrdiff_t>(i * width));
  }
  return {head_logits_.data(), x.rows, heads[0]->out()};
}

Scores SessionImpl::score(Heads heads, InputView x, int n_best) {
  check_heads(heads, x);
  EVALRUN_CHECK(n_best >= 0 && n_best <= kMostBest, "the best {} of products", n_best);
  const Span span("multiply");
  if (n_best == 0 || !backend_->answers()) return host_scores_.of(logits(heads, x), n_best);
  return backend_->best_of(heads, x, std::min(n_best, heads[0]->out()));
}

std::span<const int32_t> SessionImpl::draw(Heads heads, InputView x,
                                           const DistributionDraws& draws) {
  check_heads(heads, x);
  EVALRUN_CHECK(draws.sampling != nullptr && !draws.sampling->greedy(),
                "draws from products without sampling");
  check_draws(draws.rows, draws.dists, heads[0]->out(), x.rows);
  const Span span("multiply");
  if (!backend_->answers()) return host_scores_.draw(logits(heads, x), draws);
  return backend_->draw(heads, x, draws);
}

void SessionImpl::read_kv(int layer, int position, int sequence, std::span<float> k,
                          std::span<float> v) const {
  EVALRUN_CHECK(options_.kv_cache, "this session keeps no KV cache");
  EVALRUN_CHECK(layer >= 0 && layer < model_->config().n_layers && position >= 0 &&
                    position < length(sequence),
                "no K/V at layer {}, position {}", layer, position);
  const size_t width = static_cast<size_t>(model_->config().kv_dim());
  EVALRUN_CHECK(k.size() == width && v.size() == width, "K/V rows have {} values", width);
  backend_->read_kv(layer, position, sequence, k, v);
}

}  // namespace

std::unique_ptr<Session> Session::create(std::shared_ptr<const Model> model,
                                         const SessionOptions& options) {
  EVALRUN_CHECK(model != nullptr);
  SessionOptions o = resolve_options(options, model->format());
  EVALRUN_CHECK(o.n_sequences >= 1 && o.n_sequences <= 1024, "n_sequences {}", o.n_sequences);
  EVALRUN_CHECK(o.max_tokens >= 1, "max_tokens {}", o.max_tokens);
  if (!is_gpu(o.device)) check_cache_memory(*model, o);  // a GPU's backend plans memory of its own
  return std::make_unique<SessionImpl>(std::move(model), std::move(o));
}

}  // namespace evalrun::engine
