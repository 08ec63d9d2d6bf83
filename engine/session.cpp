#include "engine/session.h"

#include <algorithm>
#include <atomic>

#include "engine/backend.h"
#include "engine/base/error.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/devices.h"
#include "engine/model/assemble.h"
#include "engine/rejection.h"
#include "engine/row_program.h"
#include "engine/sampling_arith.h"
#include "engine/session_options.h"
#include "engine/trace.h"

namespace evalrun::engine {

Scores Backend::best_of(Session::Heads, InputView, int) {
  throw base::InternalError("this device finds no best tokens");
}

std::span<const int32_t> Backend::draw(Session::Heads, InputView, const DistributionDraws&) {
  throw base::InternalError("this device draws no tokens");
}

std::unique_ptr<DistributionStore> Backend::make_distributions(int slots, int vocab,
                                                               std::span<const int32_t> ids) {
  return std::make_unique<HostDistributions>(slots, vocab, ids);
}

uint64_t PrefixBank::next_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}
namespace {

struct Sequence {
  int length = 0;
  // Rows committed under a skip set lack K/V of the skipped layers: only a forward with the same
  // skip set may see them. skip_from = first such position, or length when there is none.
  int skip_from = 0;
  SkipSet skip;
  std::vector<int32_t> tokens;  // kept only without a KV cache, to recompute from
  // Features of the committed tokens, position by position; `featured` = how many from the front
  // have them.
  int featured = 0;
  std::vector<float> hidden;                 // [max_tokens, d_model]
  std::vector<std::vector<float>> residual;  // [layers kept][max_tokens, d_model]
};

class SessionImpl final : public Session {
 public:
  SessionImpl(std::shared_ptr<const Model> model, SessionOptions options)
      : model_(std::move(model)), options_(std::move(options)) {
    sequences_.resize(static_cast<size_t>(options_.n_sequences));
    lengths_.resize(static_cast<size_t>(options_.n_sequences));
    committed_.resize(static_cast<size_t>(options_.n_sequences));
    backend_ = is_gpu(options_.device)       ? make_cuda_backend(model_, options_)
               : options_.isa == "reference" ? make_reference_backend(model_, options_)
                                             : make_cpu_backend(model_, options_);
  }

  const Model& model() const override { return *model_; }
  const SessionOptions& options() const override { return options_; }
  std::string isa() const override { return backend_->isa(); }
  int n_threads() const override { return backend_->n_threads(); }
  bool draws_cheaply() const override { return backend_->answers(); }
  std::unique_ptr<DistributionStore> make_distributions(int slots, int vocab,
                                                        std::span<const int32_t> ids) override {
    EVALRUN_CHECK(slots >= 1 && vocab >= 1 && static_cast<size_t>(vocab) < kMaxSampledVocab,
                  "{} distributions over {} tokens", slots, vocab);
    for (const int32_t id : ids) EVALRUN_CHECK(id >= 0 && id < vocab, "id {} of {}", id, vocab);
    return backend_->make_distributions(slots, vocab, ids);
  }
  int length(int sequence) const override { return at(sequence).length; }

  void prefill(std::span<const int32_t> tokens, int sequence) override {
    const Span span("prefill");
    Sequence& s = at(sequence);
    if (s.length + static_cast<int64_t>(tokens.size()) > options_.max_tokens)
      throw base::usage_error(fmt::format("{} tokens do not fit behind {}: the session holds {}",
                                          tokens.size(), s.length, options_.max_tokens),
                              "shorten the prompt or create the session with more tokens");
    for (const int32_t t : tokens)
      EVALRUN_CHECK(t >= 0 && t < model_->config().vocab_size, "token {} is not in the vocabulary",
                    t);
    EVALRUN_CHECK(s.skip_from == s.length, "prefill behind rows committed under a skip set");
    EVALRUN_CHECK(!model_->config().paired_input, "this drafter takes features, not tokens");
    have_plan_ = false;
    if (!options_.kv_cache) {
      s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
      s.length += static_cast<int>(tokens.size());
    } else {
      compute_chunks(tokens, sequence, s.length);
      s.length += static_cast<int>(tokens.size());
    }
    s.skip_from = s.length;
  }

  ForwardResult forward(const ForwardRequest& given) override {
    const Span span("forward");
    check_request(given);
    const ForwardRequest request = features_.empty() ? given : with_features(given);
    for (size_t i = 0; i < sequences_.size(); ++i) lengths_[i] = sequences_[i].length;
    if (!options_.kv_cache) {
      for (size_t i = 0; i < sequences_.size(); ++i)
        if (std::any_of(request.rows.begin(), request.rows.end(),
                        [&](const Row& r) { return r.sequence == static_cast<int>(i); }))
          compute_chunks(sequences_[i].tokens, static_cast<int>(i), 0);
    }
    have_plan_ = false;
    plan_.build(request, lengths_, options_.max_tokens, model_->config(), backend_->answers());
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
    if (!features_.empty()) {
      last_ = result;
      result.residual = result.residual.first(given.residual_layers.size());  // the caller's
    }
    return result;
  }

  void commit(std::span<const int> path, int sequence) override {
    Sequence& s = at(sequence);
    EVALRUN_CHECK(have_plan_, "commit without a forward");
    EVALRUN_CHECK(!committed_[static_cast<size_t>(sequence)], "sequence {} was committed already",
                  sequence);
    for (size_t j = 0; j < path.size(); ++j) {
      EVALRUN_CHECK(path[j] >= 0 && static_cast<size_t>(path[j]) < plan_.all_rows().size(),
                    "row {} is not in the forward", path[j]);
      const PlanRow& r = plan_.all_rows()[static_cast<size_t>(path[j])];
      EVALRUN_CHECK(r.sequence == sequence, "row {} belongs to sequence {}", path[j], r.sequence);
      EVALRUN_CHECK(r.position == s.length + static_cast<int>(j), "row {} has position {}, not {}",
                    path[j], r.position, s.length + static_cast<int>(j));
      // Seeing exactly the path: otherwise its keys and values depend on rows that are dropped.
      EVALRUN_CHECK(r.in_block || r.visible_count == static_cast<int>(j) + 1,
                    "row {} sees {} rows, the path has {}", path[j], r.visible_count, j + 1);
      if (j > 0) {
        const auto seen = plan_.visible(r);
        EVALRUN_CHECK(std::find(seen.begin(), seen.end(), path[j - 1]) != seen.end(),
                      "row {} does not see row {}", path[j], path[j - 1]);
      }
    }
    if (options_.kv_cache) {
      backend_->commit(path, s.length, sequence);
    } else {
      for (const int row : path) {
        const PlanRow& r = plan_.all_rows()[static_cast<size_t>(row)];
        EVALRUN_CHECK(r.token >= 0, "a session without KV cache commits tokens, not embeddings");
        EVALRUN_CHECK(!r.prefix && !r.low_rank && plan_skip_.empty(),
                      "a session without KV cache commits plain rows only");
        s.tokens.push_back(r.token);
      }
    }
    if (!features_.empty()) keep_rows(path, s);
    s.length += static_cast<int>(path.size());
    if (plan_skip_.empty())
      s.skip_from = s.length;
    else
      s.skip = plan_skip_;
    committed_[static_cast<size_t>(sequence)] = true;
  }

  void rewind(int length, int sequence) override {
    Sequence& s = at(sequence);
    EVALRUN_CHECK(length >= 0 && length <= s.length, "rewind to {} of {}", length, s.length);
    s.length = length;
    s.skip_from = std::min(s.skip_from, length);
    s.featured = std::min(s.featured, length);
    if (!options_.kv_cache) s.tokens.resize(static_cast<size_t>(length));
    have_plan_ = false;
  }

  void fork(int from, int to) override {
    if (from == to) return;
    if (options_.kv_cache) backend_->copy_sequence(from, to, at(from).length);
    at(to) = at(from);
    have_plan_ = false;
  }

  void keep_features(const FeatureSet& set) override {
    for (const int l : set.residual_layers)
      EVALRUN_CHECK(l >= 0 && l <= model_->config().n_layers, "residual layer {} of {}", l,
                    model_->config().n_layers);
    if (features_ == set) return;
    features_ = set;
    for (Sequence& s : sequences_) s.featured = 0;
  }

  MatrixView hidden_features(int sequence) const override {
    EVALRUN_CHECK(features_.hidden, "hidden states are not kept");
    return features_of(at(sequence), at(sequence).hidden);
  }
  MatrixView residual_features(int index, int sequence) const override {
    EVALRUN_CHECK(index >= 0 && static_cast<size_t>(index) < features_.residual_layers.size(),
                  "residual stream {} of {}", index, features_.residual_layers.size());
    return features_of(at(sequence), at(sequence).residual[static_cast<size_t>(index)]);
  }

  MatrixView head(InputView hidden) override { return multiply(model_->head(), hidden); }

  MatrixView multiply(const WeightMatrix& w, InputView x) override {
    EVALRUN_CHECK(x.cols == w.in() && x.rows >= 1, "a product with rows of {} values, not {}",
                  w.in(), x.cols);
    const Span span("multiply");
    return backend_->multiply(w, x);
  }
  InputView compute(const RowProgram& program, int result) override {
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

  Scores score(Heads heads, InputView x, int n_best) override {
    check_heads(heads, x);
    EVALRUN_CHECK(n_best >= 0 && n_best <= kMostBest, "the best {} of products", n_best);
    const Span span("multiply");
    if (n_best == 0 || !backend_->answers()) return host_scores_.of(logits(heads, x), n_best);
    return backend_->best_of(heads, x, std::min(n_best, heads[0]->out()));
  }

  std::span<const int32_t> draw(Heads heads, InputView x, const DistributionDraws& draws) override {
    check_heads(heads, x);
    EVALRUN_CHECK(draws.sampling != nullptr && !draws.sampling->greedy(),
                  "draws from products without sampling");
    check_draws(draws.rows, draws.dists, heads[0]->out(), x.rows);
    const Span span("multiply");
    if (!backend_->answers()) return host_scores_.draw(logits(heads, x), draws);
    return backend_->draw(heads, x, draws);
  }

  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override {
    EVALRUN_CHECK(options_.kv_cache, "this session keeps no KV cache");
    EVALRUN_CHECK(layer >= 0 && layer < model_->config().n_layers && position >= 0 &&
                      position < at(sequence).length,
                  "no K/V at layer {}, position {}", layer, position);
    const size_t width = static_cast<size_t>(model_->config().kv_dim());
    EVALRUN_CHECK(k.size() == width && v.size() == width, "K/V rows have {} values", width);
    backend_->read_kv(layer, position, sequence, k, v);
  }

  PhaseTimes phases() const override { return backend_->phases(); }
  size_t bytes_per_forward(int context) const override {
    return model_->streamed_bytes() + static_cast<size_t>(context) * backend_->kv_bytes_per_token();
  }

  size_t kv_bytes() const override { return backend_->kv_bytes(); }
  size_t workspace_bytes() const override { return backend_->workspace_bytes(); }

 private:
  static void check_heads(Heads heads, const InputView& x) {
    EVALRUN_CHECK(x.rows >= 1 && (heads.size() == 1 || heads.size() == static_cast<size_t>(x.rows)),
                  "{} heads of {} rows", heads.size(), x.rows);
    for (const WeightMatrix* w : heads)
      EVALRUN_CHECK(
          x.cols == w->in() && w->out() == heads[0]->out() &&
              (w->storage() == WeightStorage::kF32) == (heads[0]->storage() == WeightStorage::kF32),
          "a head of {} x {} beside one of {} x {}, rows of {} values", w->out(), w->in(),
          heads[0]->out(), heads[0]->in(), x.cols);
  }
  // On the host, [x.rows, vocabulary].
  MatrixView logits(Heads heads, InputView x) {
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

  Sequence& at(int s) {
    EVALRUN_CHECK(s >= 0 && static_cast<size_t>(s) < sequences_.size(), "sequence {} of {}", s,
                  sequences_.size());
    return sequences_[static_cast<size_t>(s)];
  }
  const Sequence& at(int s) const { return const_cast<SessionImpl*>(this)->at(s); }

  void compute_chunks(std::span<const int32_t> tokens, int sequence, int first) {
    size_t done = 0;
    while (done < tokens.size()) {
      const int position = first + static_cast<int>(done);
      const int chunk = backend_->prefill_chunk();
      const size_t to_border = static_cast<size_t>(chunk - position % chunk);
      const size_t n = std::min(to_border, tokens.size() - done);
      const auto& layers = features_.residual_layers;
      const bool behind =
          std::find(layers.begin(), layers.end(), model_->config().n_layers) != layers.end();
      chunk_plan_.build_prefill(tokens.subspan(done, n), sequence, position, features_.hidden,
                                !features_.hidden && !behind);
      ForwardRequest request;
      request.residual_layers = features_.residual_layers;
      ForwardResult result;
      backend_->forward(chunk_plan_, request, result, answers_);
      chunk_path_.resize(n);
      for (size_t i = 0; i < n; ++i) chunk_path_[i] = static_cast<int>(i);
      backend_->commit(chunk_path_, position, sequence);
      if (!features_.empty()) {
        Sequence& s = at(sequence);
        room_for_features(s);
        for (size_t i = 0; i < n; ++i) {
          const int row = static_cast<int>(i);
          if (features_.hidden) copy_feature(result.hidden.row(row), position + row, s.hidden);
          for (size_t j = 0; j < s.residual.size(); ++j)
            copy_feature(result.residual[j].row(row), position + row, s.residual[j]);
        }
        if (s.featured >= position) s.featured = position + static_cast<int>(n);
      }
      done += n;
    }
  }

  // The request that asks for the features of every row as well. Its residual streams are the
  // caller's, then the features'.
  ForwardRequest with_features(const ForwardRequest& given) {
    ForwardRequest request = given;
    if (features_.hidden) {
      feature_rows_.assign(given.rows.begin(), given.rows.end());
      for (Row& row : feature_rows_) row.hidden = true;
      request.rows = feature_rows_;
    }
    feature_layers_.assign(given.residual_layers.begin(), given.residual_layers.end());
    feature_layers_.insert(feature_layers_.end(), features_.residual_layers.begin(),
                           features_.residual_layers.end());
    request.residual_layers = feature_layers_;
    EVALRUN_CHECK(!given.extend, "features of rows that stay are not kept");
    return request;
  }

  void room_for_features(Sequence& s) const {
    const size_t size =
        static_cast<size_t>(options_.max_tokens) * static_cast<size_t>(model_->config().d_model);
    if (features_.hidden && s.hidden.size() < size) s.hidden.resize(size);
    s.residual.resize(features_.residual_layers.size());
    for (std::vector<float>& r : s.residual)
      if (r.size() < size) r.resize(size);
  }
  static void copy_feature(std::span<const float> from, int position, std::vector<float>& to) {
    std::copy(from.begin(), from.end(),
              to.begin() + static_cast<ptrdiff_t>(position) * static_cast<ptrdiff_t>(from.size()));
  }
  void keep_rows(std::span<const int> path, Sequence& s) {
    room_for_features(s);
    const size_t callers = last_.residual.size() - features_.residual_layers.size();
    for (size_t j = 0; j < path.size(); ++j) {
      const int position = s.length + static_cast<int>(j);
      if (features_.hidden) copy_feature(last_.hidden_row(path[j]), position, s.hidden);
      for (size_t k = 0; k < s.residual.size(); ++k)
        copy_feature(last_.residual[callers + k].row(path[j]), position, s.residual[k]);
    }
    if (s.featured == s.length) s.featured = s.length + static_cast<int>(path.size());
  }
  MatrixView features_of(const Sequence& s, const std::vector<float>& values) const {
    EVALRUN_CHECK(s.featured == s.length, "{} of {} tokens were committed with features",
                  s.featured, s.length);
    return {values.data(), s.length, model_->config().d_model};
  }

  void check_request(const ForwardRequest& request) const {
    const ModelConfig& c = model_->config();
    const size_t layers = static_cast<size_t>(c.n_layers);
    if (request.extend) {
      EVALRUN_CHECK(options_.kv_cache && have_plan_, "nothing to extend: no forward came before");
      for (const bool committed : committed_)
        EVALRUN_CHECK(!committed, "rows stay only until some of them are committed");
    }
    if (request.prefix != nullptr) {
      const PrefixBank& p = *request.prefix;
      EVALRUN_CHECK(p.heads == 0 || p.heads == c.n_kv_heads || p.heads == c.n_heads,
                    "prefix bank of {} heads for {} and {}", p.heads, c.n_heads, c.n_kv_heads);
      const size_t size =
          static_cast<size_t>(p.length) *
          static_cast<size_t>(p.heads == c.n_heads ? c.n_heads * c.head_dim : c.kv_dim());
      EVALRUN_CHECK(p.k.size() == layers && p.v.size() == layers, "prefix bank: {} layers needed",
                    layers);
      for (size_t l = 0; l < layers; ++l)
        EVALRUN_CHECK(p.k[l].size() == size && p.v[l].size() == size,
                      "prefix bank: layer {} holds {} values, not {}", l, p.k[l].size(), size);
    }
    if (request.low_rank != nullptr)
      EVALRUN_CHECK(request.low_rank->layers.size() == layers, "low-rank delta: {} layers needed",
                    layers);
    if (request.skip != nullptr)
      EVALRUN_CHECK((request.skip->attention.empty() || request.skip->attention.size() == layers) &&
                        (request.skip->mlp.empty() || request.skip->mlp.size() == layers),
                    "skip set: {} layers needed", layers);
    for (const int l : request.residual_layers)
      EVALRUN_CHECK(l >= 0 && l <= c.n_layers, "residual layer {} of {}", l, c.n_layers);
    check_dists(request);
    static const SkipSet kNone;
    const SkipSet& skip = request.skip == nullptr ? kNone : *request.skip;
    for (const Row& r : request.rows) {
      const Sequence& s = at(r.sequence);
      EVALRUN_CHECK(s.skip_from == s.length || s.skip == skip,
                    "sequence {} holds rows committed under another skip set: rewind to {} first",
                    r.sequence, s.skip_from);
    }
  }

  // Draws from `outputs` logits, in order of rows.
  static void check_draws(std::span<const DistributionDraw> draws, const DistributionStore* dists,
                          int outputs, int rows) {
    EVALRUN_CHECK(dists != nullptr, "no distributions to keep");
    EVALRUN_CHECK(dists->n_ids() == 0 ? outputs <= dists->vocab() : outputs == dists->n_ids(),
                  "a distribution of {} outputs among distributions of {}", outputs,
                  dists->n_ids() == 0 ? dists->vocab() : dists->n_ids());
    int last = -1;
    std::vector<bool> taken(static_cast<size_t>(dists->slots()));
    for (const DistributionDraw& d : draws) {
      EVALRUN_CHECK(d.row > last && d.row < rows, "row {} behind row {} of {}", d.row, last, rows);
      EVALRUN_CHECK(d.slot >= 0 && d.slot < dists->slots(), "distribution {} of {}", d.slot,
                    dists->slots());
      EVALRUN_CHECK(!taken[static_cast<size_t>(d.slot)], "distribution {} is kept twice", d.slot);
      taken[static_cast<size_t>(d.slot)] = true;
      EVALRUN_CHECK(!d.uniforms.empty() && d.uniforms.size() <= static_cast<size_t>(kMostBest),
                    "{} draws of a row", d.uniforms.size());
      for (const double uniform : d.uniforms)
        EVALRUN_CHECK(uniform >= 0 && uniform < 1, "a uniform number of {}", uniform);
      last = d.row;
    }
  }
  void check_dists(const ForwardRequest& request) const {
    const int n = model_->config().n_logits(), rows = static_cast<int>(request.rows.size());
    if (!request.distribution_draws.empty())
      check_draws(request.distribution_draws, request.dists, n, rows);
    for (const DistributionDraw& d : request.distribution_draws) {
      const Row& r = request.rows[static_cast<size_t>(d.row)];
      EVALRUN_CHECK(r.uniform == d.uniforms[0] && !r.logits,
                    "row {} draws by another uniform, or has logits", d.row);
    }
    int last = -1;
    size_t draws = 0;
    for (const RejectionTest& t : request.rejection_tests) {
      while (draws < request.distribution_draws.size() &&
             request.distribution_draws[draws].row < t.row)
        ++draws;
      EVALRUN_CHECK(draws == request.distribution_draws.size() ||
                        request.distribution_draws[draws].row != t.row,
                    "row {} draws and is tried", t.row);
      EVALRUN_CHECK(request.dists != nullptr, "no distributions to try by");
      EVALRUN_CHECK(t.row > last && t.row < rows, "row {} behind row {} of {}", t.row, last, rows);
      EVALRUN_CHECK(t.slot >= 0 && t.slot < request.dists->slots(), "distribution {} of {}", t.slot,
                    request.dists->slots());
      const Row& r = request.rows[static_cast<size_t>(t.row)];
      EVALRUN_CHECK(r.uniform >= 0 && !r.logits,
                    "row {} is tried without a uniform number, or has logits", t.row);
      for (const int32_t child : t.children)
        EVALRUN_CHECK(child >= 0 && child < std::min(n, request.dists->vocab()), "child {} of {}",
                      child, n);
      last = t.row;
    }
  }

  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  std::unique_ptr<Backend> backend_;
  std::vector<Sequence> sequences_;
  std::vector<int> lengths_;
  std::vector<bool> committed_;
  Answers answers_;
  HostScores host_scores_;
  std::vector<float> head_logits_;  // [heads, vocabulary]
  FeatureSet features_;
  ForwardResult last_;  // with the features of its rows
  std::vector<Row> feature_rows_;
  std::vector<int> feature_layers_;
  ForwardPlan plan_, chunk_plan_;
  std::vector<int> chunk_path_;
  SkipSet plan_skip_;
  bool have_plan_ = false;
};

}  // namespace

namespace {

// Refuses caches this machine cannot hold, before anything is allocated.
void check_memory(const Model& model, const SessionOptions& o) {
  const ModelConfig& c = model.config();
  const double per_value = o.kv_dtype == "f32"    ? 4
                           : o.kv_dtype == "bf16" ? 2
                                                  : 1 + 4.0 / c.head_dim;
  const double per_token = 2.0 * c.n_layers * c.kv_dim() * per_value;
  const double needed =
      o.max_tokens * (per_token * o.n_sequences + static_cast<double>(c.head_dim) * sizeof(float));
  const double available = static_cast<double>(available_memory_bytes());
  if (needed > available)
    throw base::data_error(
        model.path(), "KV cache",
        fmt::format("{} tokens x {} sequences need {:.1f} GiB, {:.1f} GiB are free", o.max_tokens,
                    o.n_sequences, needed / 0x1p30, available / 0x1p30),
        "lower the context length (prompt + max_new) or the number of sequences");
}

}  // namespace

std::unique_ptr<Session> Session::create(std::shared_ptr<const Model> model,
                                         const SessionOptions& options) {
  EVALRUN_CHECK(model != nullptr);
  SessionOptions o = resolve_options(options, model->format());
  EVALRUN_CHECK(o.n_sequences >= 1 && o.n_sequences <= 1024, "n_sequences {}", o.n_sequences);
  EVALRUN_CHECK(o.max_tokens >= 1, "max_tokens {}", o.max_tokens);
  if (!is_gpu(o.device)) check_memory(*model, o);  // a GPU's backend plans memory of its own
  return std::make_unique<SessionImpl>(std::move(model), std::move(o));
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const cpu::Kernels& k : cpu::available_kernels()) names.push_back(k.name);
  names.push_back("reference");
  return names;
}

std::vector<std::string> one_isa_paths() {
  std::vector<std::string> names;
  for (const cpu::Kernels& k : cpu::available_kernels())
    if (cpu::one_isa_kernels(k.name) != nullptr) names.push_back(k.name);
  return names;
}

std::vector<std::string> kv_dtypes() { return {"f32", "bf16", "int8"}; }

}  // namespace evalrun::engine
