// A session without a network: the logits after a context come from a function of the context's
// tokens. It has everything a method can see of a session - tree rows, commit, rewind, capacity -
// so that the decode loop and the methods can be tested against distributions known by heart.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/answers.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/rejection.h"
#include "engine/sampling.h"
#include "engine/session.h"

namespace evalrun::tests {

// Fills `logits` for the token that follows `context`. Row invariance holds by construction.
using LogitTable = std::function<void(std::span<const int32_t> context, std::span<float> logits)>;

class FakeSession final : public engine::Session {
 public:
  FakeSession(int vocab, int capacity, LogitTable table, int sequences = 1)
      : vocab_(vocab), table_(std::move(table)), tokens_(static_cast<size_t>(sequences)) {
    options_.max_tokens = capacity;
    options_.n_sequences = sequences;
    options_.n_threads = 1;
    context_.reserve(static_cast<size_t>(capacity) + engine::kMaxRows);
    for (std::vector<int32_t>& tokens : tokens_) tokens.reserve(static_cast<size_t>(capacity));
    logits_.reserve(64 * static_cast<size_t>(vocab));
  }

  const engine::Model& model() const override {
    throw base::InternalError("a fake session has no model");
  }
  // What a mask row's state is, from the tokens it sees and its place among the masks after them
  // (1..); masks are told apart by their embedding's number.
  using MaskTable = std::function<void(std::span<const int32_t> context, int place, int embedding,
                                       std::span<float> state)>;
  void set_masks(int width, MaskTable table) { width_ = width, masks_ = std::move(table); }
  void set_device(const std::string& device) { options_.device = device; }  // by name alone
  void set_time_device() { options_.time_device = true; }
  const engine::SessionOptions& options() const override { return options_; }
  std::string isa() const override { return "fake"; }
  int n_threads() const override { return 1; }
  bool draws_cheaply() const override { return cheap_draws; }
  std::unique_ptr<engine::DistributionStore> make_distributions(
      int slots, int vocab, std::span<const int32_t> ids) override {
    return std::make_unique<engine::HostDistributions>(slots, vocab, ids);
  }
  int length(int sequence) const override { return static_cast<int>(committed(sequence).size()); }
  int free_tokens(int sequence) const override { return capacity() - length(sequence); }

  using Session::prefill;
  void prefill(std::span<const engine::SequenceTokens> parts) override {
    for (const auto& [sequence, tokens] : parts) {
      EVALRUN_CHECK(length(sequence) + static_cast<int>(tokens.size()) <= capacity());
      prefills.push_back(static_cast<int>(tokens.size()));
      std::vector<int32_t>& all = tokens_[static_cast<size_t>(sequence)];
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
  }

  engine::ForwardResult forward(const engine::ForwardRequest& request) override {
    const int n = static_cast<int>(request.rows.size());
    EVALRUN_CHECK(n >= 1, "a forward without rows");
    ++forwards;
    if (watch) watch(request);
    rows_.assign(request.rows.begin(), request.rows.end());
    for (size_t s = 0; s < tokens_.size(); ++s) {
      const auto own = std::ranges::count(rows_, static_cast<int32_t>(s), &engine::Row::sequence);
      EVALRUN_CHECK(length(static_cast<int>(s)) + own <= capacity(), "{} rows after {} of {}", own,
                    length(static_cast<int>(s)), capacity());
    }
    logits_.resize(static_cast<size_t>(n * vocab_));
    rows_of_.assign(static_cast<size_t>(n), -1);
    answers_.begin(request, vocab_);
    hidden_.assign(static_cast<size_t>(n * width_), 0.0f);
    hidden_of_.assign(static_cast<size_t>(n), -1);
    for (int i = 0; i < n; ++i) {
      const int parent = rows_[static_cast<size_t>(i)].parent;
      EVALRUN_CHECK(parent < i && (parent < 0 || rows_[static_cast<size_t>(parent)].sequence ==
                                                     rows_[static_cast<size_t>(i)].sequence));
      const std::vector<int32_t>& before = committed(rows_[static_cast<size_t>(i)].sequence);
      context_.assign(before.begin(), before.end());
      append_path(i);
      const auto logits = std::span<float>(logits_).subspan(static_cast<size_t>(i * vocab_),
                                                            static_cast<size_t>(vocab_));
      const engine::Row& row = rows_[static_cast<size_t>(i)];
      if (row.embedding >= 0) {
        EVALRUN_CHECK(masks_ != nullptr && !row.logits && !row.top && row.uniform < 0,
                      "a mask without a table");
        note_mask(i, row);
        continue;
      }
      table_(context_, logits);
      // Only what was asked for can be read.
      logit_rows += row.logits;
      top_rows += row.top;
      drawn_rows += row.uniform >= 0;
      if (row.logits) rows_of_[static_cast<size_t>(i)] = i;
      answers_.answer(request, i, logits);
    }
    engine::ForwardResult result;
    result.logits = {logits_.data(), n, vocab_};
    result.logits_of = rows_of_;
    answers_.publish(result);
    result.hidden = {hidden_.data(), n, width_};
    result.hidden_of = hidden_of_;
    return result;
  }

  using Session::commit;
  void commit(std::span<const engine::SequencePath> paths) override {
    for (const auto& [sequence, path] : paths) {
      int parent = -1;
      for (int row : path) {
        engine::Row& r = rows_[static_cast<size_t>(row)];
        EVALRUN_CHECK(r.parent == parent && r.sequence == sequence, "a path with a gap");
        tokens_[static_cast<size_t>(sequence)].push_back(r.token);
        r.sequence = -1;  // once
        parent = row;
      }
    }
  }

  void rewind(int length, int sequence) override {
    EVALRUN_CHECK(length >= 0 && length <= this->length(sequence));
    tokens_[static_cast<size_t>(sequence)].resize(static_cast<size_t>(length));
  }
  void fork(int, int) override {}
  engine::MatrixView head(engine::InputView) override { return {}; }
  void keep_features(const engine::FeatureSet& set) override {
    if (!set.empty()) throw base::InternalError("a table has no features");
  }
  engine::MatrixView hidden_features(int) const override {
    throw base::InternalError("a table has no features");
  }
  engine::MatrixView residual_features(int, int) const override {
    throw base::InternalError("a table has no features");
  }
  engine::MatrixView multiply(const engine::WeightMatrix& w, engine::InputView x) override {
    product_.assign(static_cast<size_t>(x.rows * w.out()), 0.0f);
    for (int i = 0; i < x.rows; ++i)
      for (int o = 0; o < w.out(); ++o)
        for (int k = 0; k < w.in(); ++k)
          product_[static_cast<size_t>(i * w.out() + o)] +=
              w.at(o, k) * x.row(i)[static_cast<size_t>(k)];
    return {product_.data(), x.rows, w.out()};
  }
  engine::InputView compute(const engine::RowProgram&, int) override {
    throw base::InternalError("a table computes no layers");
  }
  engine::Scores score(engine::Heads heads, engine::InputView x, int n_best) override {
    return scores_.of(multiply(*heads[0], x), n_best);
  }
  std::span<const int32_t> draw(engine::Heads heads, engine::InputView x,
                                const engine::DistributionDraws& draws) override {
    return scores_.draw(multiply(*heads[0], x), draws);
  }
  void read_kv(int, int, int, std::span<float>, std::span<float>) const override {}
  engine::PhaseTimes phases() const override { return {}; }
  size_t bytes_per_forward(int) const override { return 0; }
  size_t kv_bytes() const override { return 0; }
  size_t workspace_bytes() const override { return 0; }
  engine::WeightPlacement weight_placement() const override { return placement; }

  const std::vector<int32_t>& committed(int sequence = 0) const {
    return tokens_[static_cast<size_t>(sequence)];
  }
  std::vector<int> prefills;                                 // sizes of the prefill calls so far
  std::function<void(const engine::ForwardRequest&)> watch;  // sees every forward first
  int forwards = 0;
  int logit_rows = 0, top_rows = 0, drawn_rows = 0;  // rows that asked for them so far
  bool cheap_draws = false;                          // draws_cheaply()
  engine::WeightPlacement placement;                 // weight_placement()

 private:
  void append_path(int row) {
    const engine::Row& r = rows_[static_cast<size_t>(row)];
    if (r.parent >= 0) append_path(r.parent);
    if (r.embedding < 0) context_.push_back(r.token);
  }
  void note_mask(int i, const engine::Row& row) {
    int place = 0;
    for (int up = i; up >= 0 && rows_[static_cast<size_t>(up)].embedding >= 0;
         up = rows_[static_cast<size_t>(up)].parent)
      ++place;
    masks_(context_, place, row.embedding,
           std::span<float>(hidden_).subspan(static_cast<size_t>(i * width_),
                                             static_cast<size_t>(width_)));
    if (row.hidden) hidden_of_[static_cast<size_t>(i)] = i;
  }

  int vocab_;
  LogitTable table_;
  engine::SessionOptions options_;
  std::vector<std::vector<int32_t>> tokens_;  // [sequence]
  std::vector<int32_t> context_;
  std::vector<engine::Row> rows_;
  std::vector<float> logits_;
  std::vector<int32_t> rows_of_, hidden_of_;
  engine::Answers answers_;
  engine::HostScores scores_;
  int width_ = 0;
  MaskTable masks_;
  std::vector<float> hidden_, product_;
};

// Logits in [-sharpness, sharpness) that depend on the last `order` tokens and the seed.
inline LogitTable markov_table(uint64_t seed, int order, float sharpness) {
  return [=](std::span<const int32_t> context, std::span<float> logits) {
    uint64_t state = base::mix64(seed);
    const size_t n = std::min(context.size(), static_cast<size_t>(order));
    for (int32_t token : context.last(n)) state = base::mix64(state ^ static_cast<uint32_t>(token));
    base::Rng rng(state);
    for (float& l : logits) l = sharpness * static_cast<float>(2 * rng.uniform() - 1);
  };
}

}  // namespace evalrun::tests
