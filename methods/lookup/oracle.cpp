// Synthetic acceptance: not a method, but what any drafter of a given acceptance could reach at
// most. Drafts are the text that plain decoding gives, wrong on purpose now and then: at depth d a
// draft token is the right one with probability alpha * decay^(d-1), and another token otherwise.
// So a step gives 1 + sum over d of prod over i <= d of alpha * decay^(i-1) tokens, drafts cost
// nothing, and what is missing to tau / (T(1 + k)/T(1)) is the overhead of engine and loop.
//
// An oracle that knows the text gives the bounds of "Speculative Decoding: Performance or
// Illusion?" (arXiv 2601.11580); a base rate and its decay by depth are vLLM's synthetic acceptance
// (github.com/vllm-project/vllm/pull/38045). Differs: vLLM accepts by force, whatever was drafted.
// Here the target verifies the drafts as any others, so that answers are plain decoding's own,
// greedy or sampled.
//
// Each token's number belongs to the step's position and to the depth (base::KeyedChance), so that
// drafts do not depend on batches, on the order of prompts, or on what a sampler draws.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct OracleShape {
  bool adaptive = false;
  double alpha = 0.8, decay = 1;
  int k = 4;
};

class OracleDrafter final : public Drafter {
 public:
  OracleDrafter(const OracleShape& shape, int vocab) : shape_(shape), vocab_(vocab) {}

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<OracleDrafter>(shape_, vocab_);
  }

  void start(const GenerationContext& context) override {
    if (context.known_answer.empty())
      throw base::usage_error(
          "oracle drafts from plain decoding's answer, and nobody gives it that here",
          "measure it with `evalrun run`, which decodes the answer first");
    answer_ = context.known_answer;
    prompt_ = context.prompt.size();
    chance_ = context.chance;
    stop_ids_ = context.stop_ids;
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const size_t first = sequence.size() - prompt_;  // place of the answer that is due
    int node = 0;
    for (int depth = 1; depth <= std::min(shape_.k, max_depth); ++depth) {
      const size_t at = first + static_cast<size_t>(depth) - 1;
      if (at >= answer_.size() || is_stop(stop_ids_, answer_[at])) return;
      const auto position = static_cast<int64_t>(first);
      const bool right = chance_.draft(position, kRight, depth) < acceptance(depth);
      node = tree.add(
          right ? answer_[at] : other_than(answer_[at], chance_.draft(position, kWrong, depth)),
          node);
    }
  }

  LargestStep largest_step() const override { return {.rows = 1 + shape_.k}; }
  void add_kept(KeptMemory&) const override {}
  double expected(int, int depth) const override { return acceptance(depth); }

 private:
  static constexpr int kRight = 0, kWrong = 1;  // lists of draws

  double acceptance(int depth) const { return shape_.alpha * std::pow(shape_.decay, depth - 1); }
  // Each of the others as likely.
  int32_t other_than(int32_t token, double uniform) const {
    const auto other = static_cast<int32_t>(uniform * (vocab_ - 1));
    return other < token ? other : other + 1;
  }

  const OracleShape shape_;
  const int vocab_;
  std::span<const int32_t> answer_, stop_ids_;
  size_t prompt_ = 0;
  base::KeyedChance chance_;
};

}  // namespace

MethodInfo synthetic_acceptance() {
  MethodInfo info;
  info.name = "oracle";
  info.summary = "synthetic acceptance: drafts plain decoding's answer, wrong at a given rate";
  info.source = "arXiv 2601.11580 (an oracle's bounds); github.com/vllm-project/vllm/pull/38045";
  info.needs = "nothing";
  info.needs_answer = true;
  info.notes =
      "Not a decoding method: it shows what a drafter of that acceptance that costs nothing could "
      "reach here. Only `evalrun run` measures it, tables keep it apart, and it is never called "
      "the fastest.";
  using Shape = OracleShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("alpha", &Shape::alpha, {0, 1},
               "how often the first draft token is right; 1 = always")
          .add("decay", &Shape::decay, {0, 1},
               "a token is right so many times as often as the one before it, given that that was")
          .add("k", &Shape::k, {1, engine::kMaxRows - 1}, "draft tokens of a step, a chain");
  info.params = parameters.infos();
  info.alone = "it drafts what nobody can know";
  info.build = parameters.bound([](const Shape& shape, const MethodBuildContext& context) {
    return finish_method(
        std::make_unique<OracleDrafter>(shape, context.target->config().vocab_size), shape.adaptive,
        context);
  });
  return info;
}

}  // namespace evalrun::methods
