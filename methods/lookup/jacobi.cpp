// Jacobi decoding (Santilli et al. 2023, "Accelerating Transformer Inference for Translation via
// Parallel Decoding", arXiv 2305.10427): a block of n guesses for the next n tokens is
// verified as a chain. What the target says after each guess, right or wrong, is the guess for the
// place behind it in the next step: a Jacobi iteration of the equations that plain decoding solves
// one by one. Guesses that come true are the answer's tokens, so that a step gives one at least.
//
// Lookahead decoding (methods/lookup/lookahead.cpp) is this with a pool of what the iterations have
// said on their way.
//
// block=moving keeps n guesses in front of the newest token, as papers on Lookahead and after it
// describe Jacobi decoding. With block=fixed a block is iterated until all of it is settled, then
// comes the next.
//
// Differs: a block starts with random tokens of the prompt (or of the vocabulary), not with padding
// tokens, which a decoder-only model has not learnt to go on from. A guess that is a stop token is
// replaced by another random one: nothing is drafted behind a stop token, so that it would stand
// there for ever. Under sampling, which the paper leaves out, a guess is the target's draw at that
// place of the answer, by the number that plain decoding draws by there, so that an iteration has
// the same fixed point as plain decoding.
//
// Not adaptive: a guess gets better by being computed, so that rows which are cut are guesses that
// stay as they were.
#include <algorithm>

#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/lookup/random_tokens.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct JacobiShape {
  bool moving = true;  // block=
  TokenSource init = TokenSource::kPrompt;
  int n = 4;
};

class JacobiDrafter final : public Drafter {
 public:
  JacobiDrafter(const JacobiShape& shape, int vocab)
      : shape_(shape), vocab_(vocab), random_(shape.init, vocab) {
    for (std::vector<int32_t>* list : {&guesses_, &next_})
      list->reserve(static_cast<size_t>(shape.n) + 1);
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<JacobiDrafter>(shape_, vocab_);
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    random_.start(context.prompt);
    guesses_.clear();
    refill();
  }

  void draft(std::span<const int32_t>, int max_depth, TokenTree& tree) override {
    tree.add_path(usable_draft(guesses_, max_depth, stop_ids_), true);
  }

  TargetWants wants() const override { return {.tokens = true}; }
  // Guess i stands at place i behind the root, 1 to n. The step emits one token more than it
  // accepts, and the last of them is the next root.
  void learn(std::span<const int32_t>, const TokenTree& tree, std::span<const int> path,
             TargetAnswers& answers) override {
    const size_t emitted = path.size() + 1, n = guesses_.size();
    const size_t told = static_cast<size_t>(tree.drafted()) + 1;  // places that the target spoke of
    const size_t last = shape_.moving ? std::max(told, n) : n;
    next_.clear();
    for (size_t place = emitted + 1; place <= last; ++place)
      next_.push_back(place <= told ? answers.token(static_cast<int>(place) - 1)
                                    : guesses_[place - 1]);
    for (int32_t& token : next_)
      if (is_stop(stop_ids_, token)) token = random_.next();
    guesses_.swap(next_);
    if (shape_.moving || guesses_.empty()) refill();
  }

  LargestStep largest_step() const override { return {.rows = 1 + shape_.n}; }
  void add_kept(KeptMemory&) const override {}

 private:
  void refill() {
    while (guesses_.size() < static_cast<size_t>(shape_.n)) guesses_.push_back(random_.next());
  }

  const JacobiShape shape_;
  const int vocab_;
  RandomTokens random_;
  std::span<const int32_t> stop_ids_;
  std::vector<int32_t> guesses_, next_;
};

}  // namespace

MethodInfo jacobi_method() {
  MethodInfo info;
  info.name = "jacobi";
  info.summary = "a block of guesses, each replaced by what the target said after the one before";
  info.source = "Santilli et al. 2023, arXiv 2305.10427";
  info.needs = "nothing";
  info.notes =
      "\"Jacobi decoding\" in papers on Lookahead and on consistency models is this with a moving "
      "block. n=4 is ours.";
  using Shape = JacobiShape;
  const auto parameters =
      Parameters<Shape>{}
          .choice("block", &Shape::moving, {{"moving", true}, {"fixed", false}},
                  "n guesses in front of the newest token, or a block until all of it is settled")
          .choice("init", &Shape::init, token_sources(), "where first guesses are drawn")
          .add("n", &Shape::n, {1, engine::kMaxRows - 1}, "guesses in a block");
  info.params = parameters.infos();
  info.alone = "its guesses are kept by their places in its own chain";
  info.build = parameters.bound([](const Shape& shape, const MethodBuildContext& context) {
    return finish_method(
        std::make_unique<JacobiDrafter>(shape, context.target->config().vocab_size), false,
        context);
  });
  return info;
}

}  // namespace evalrun::methods
