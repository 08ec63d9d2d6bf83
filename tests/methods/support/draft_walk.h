// Drafters without a target and without forwards, led along a text that is given: for benches and
// tests of what look-ups cost after much of it.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "methods/speculative_method.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests {

// Of a method of the common verifier, as it is for a model with so many ids.
inline std::unique_ptr<methods::Drafter> make_drafter(const std::string& spec, int vocab) {
  const auto method = build_method(spec, small_model(1, vocab));
  std::unique_ptr<methods::Drafter> taken;
  methods::with_verdicts(*method, "a walk")
      .replace_drafter([&](std::unique_ptr<methods::Drafter> drafter) {
        taken = std::move(drafter);
        return std::unique_ptr<methods::Drafter>();
      });
  return taken;
}

// A drafter along a text, without a target: its answers are made here. What the target says is the
// text's next token where a draft followed the text, and made up elsewhere.
class DraftWalk {
 public:
  DraftWalk(methods::Drafter& drafter, const Tokens& text, int vocab)
      : drafter_(drafter), text_(text), vocab_(static_cast<uint64_t>(vocab)) {
    sampling_.temperature = 1;
    tree_.reserve(engine::kMaxRows);
    path_.reserve(kDeepest);
    best_.resize(static_cast<size_t>(engine::kMostBest) * engine::kMaxRows);
    log_sums_.assign(engine::kMaxRows, 0.0);
    for (int i = 0; i < engine::kMaxRows; ++i) best_of_.push_back(i);
    result_.best.best = best_;
    result_.best.log_sums = log_sums_;
    result_.best_of = best_of_;
  }

  // An answer of up to `max_new` tokens after text[begin, begin + prompt).
  void start(size_t begin, size_t prompt, size_t max_new) {
    begin_ = begin;
    at_ = begin + prompt;
    methods::GenerationContext context;
    context.prompt = std::span(text_).subspan(begin, prompt);
    context.first_token = text_[at_];
    context.max_new = static_cast<int>(max_new);
    context.sampling = sampling_;
    context.chance = base::KeyedChance(1);
    drafter_.start(context);
  }
  // Takes in the text up to place `end`, without counting; `in_steps`: by decoding it.
  void read(size_t end, bool in_steps) {
    const int64_t before = ns_;
    while (in_steps && at_ + 1 < end) step(end);
    ns_ = before;
    if (drafter_.wants().best > 0) {
      for (; at_ + 1 < end; ++at_) {
        tree_.reset(text_[at_]);
        path_.clear();
        answer();
        drafter_.learn(sequence(), tree_, path_, answers_);
      }
    }
    at_ = end - 1;
    tree_.reset(text_[at_]);
    draft(kDeepest);
  }
  // One step towards `end`; the tokens that it takes.
  size_t step(size_t end) {
    const size_t left = end - 1 - at_;
    tree_.reset(text_[at_]);
    side_.clear();
    const auto begin = std::chrono::steady_clock::now();
    draft(static_cast<int>(std::min<size_t>(left, kDeepest)));
    drafter_.side_rows(engine::kMaxRows - tree_.size(), side_);
    const auto drafted = std::chrono::steady_clock::now();
    follow(left);
    const bool learns = drafter_.wants().best > 0;
    if (learns) answer();
    tops_.assign(side_.token.begin(), side_.token.end());
    for (int32_t& token : tops_) token = text_[static_cast<size_t>(token) % text_.size()];
    const auto answered = std::chrono::steady_clock::now();
    if (learns) drafter_.learn(sequence(), tree_, path_, answers_);
    if (side_.size() > 0) drafter_.side_tops(text_[at_ + 1], tops_);
    const size_t taken = path_.size() + 1;
    drafter_.accepted(path_, text_[at_ + taken]);
    const auto ended = std::chrono::steady_clock::now();
    ns_ += std::chrono::nanoseconds((drafted - begin) + (ended - answered)).count();
    at_ += taken;
    return taken;
  }
  size_t at() const { return at_; }
  int64_t ns() const { return ns_; }

 private:
  static constexpr int kDeepest = 64;  // draft

  std::span<const int32_t> sequence() const {
    return std::span(text_).subspan(begin_, at_ - begin_ + 1);
  }
  // No drafter here needs forwards, so that a draft has one stage.
  void draft(int depth) {
    drafter_.draft(sequence(), depth, tree_);
    EVALRUN_CHECK(!drafter_.stage(tree_), "a drafter of this bench wants a forward");
  }
  // Accepts what the text goes on with, and leaves a token for the target.
  void follow(size_t left) {
    path_.clear();
    const size_t most =
        std::min(left - 1, static_cast<size_t>(std::max(drafter_.max_accepted(), 0)));
    for (int node = 0; path_.size() < most;) {
      node = tree_.child(node, text_[at_ + path_.size() + 1]);
      if (node < 0) break;
      path_.push_back(node);
    }
  }
  // After a node on the path the text's token is the likeliest.
  void answer() {
    const methods::TargetWants wants = drafter_.wants();
    result_.best.n_best = wants.best;
    const auto k = static_cast<size_t>(wants.best);
    size_t on_path = 0;
    for (int node = 0; node < tree_.size(); ++node) {
      const int32_t token = tree_.token[static_cast<size_t>(node)];
      auto first = base::mix64(static_cast<uint64_t>(token)) % vocab_;
      if (node == 0 || (on_path < path_.size() && path_[on_path] == node)) {
        on_path += node > 0;
        first = static_cast<uint64_t>(text_[at_ + on_path + 1]);
      }
      for (size_t rank = 0; rank < k; ++rank)
        best_[static_cast<size_t>(node) * k + rank] = {
            static_cast<int32_t>((first + rank * 7919) % vocab_), -1 - static_cast<float>(rank)};
    }
    answers_.begin(result_, tree_, sampling_, uniform_, wants);
  }

  methods::Drafter& drafter_;
  const Tokens& text_;
  const uint64_t vocab_;
  engine::SamplingParams sampling_;
  methods::TokenTree tree_;
  methods::SideRows side_;
  std::vector<int> path_;
  std::vector<int32_t> tops_, best_of_;
  std::vector<engine::TokenLogit> best_;  // [row, k]
  std::vector<double> log_sums_;
  engine::ForwardResult result_;
  methods::TargetAnswers answers_;
  methods::KeyedUniforms uniform_{base::KeyedChance(1)};
  size_t begin_ = 0, at_ = 0;  // of the conversation; its newest token
  int64_t ns_ = 0;
};

}  // namespace evalrun::tests
