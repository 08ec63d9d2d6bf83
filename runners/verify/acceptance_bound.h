// How many draft tokens sampled steps keep, beside the most that any lossless rule of verification
// could keep of the same drafts (transport_bound.h). On average over steps the first is at most the
// second, whatever the rule, as long as it is lossless; a rule that is significantly above is not.
//
// Both are of the very same steps. A second session gives the target's distribution after drafted
// nodes, after those that were refused, too. So a step costs a plain forward for each drafted node
// that has a draft below it. On a GPU drafts are drawn and verified on the host meanwhile, as in
// audits.
//
// What is known, by the law of the drafts:
// - one chain, and several chains drawn alike (verify=gbv): the tokens of the whole step;
// - trees, whose siblings are drawn with or without replacement: whether a token is kept at all;
// - drafts whose distribution is not reported (chosen without chance, or by verify=match, argmax or
//   gumbel): what is kept, without a bound.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/stats.h"
#include "engine/session.h"
#include "methods/method.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"
#include "runners/verify/token_identity.h"

namespace evalrun::runners {

// Sums over the steps of the answers to one prompt. A step's tokens are counted as verified, those
// beyond the end of the answer included.
struct KeptDrafts {
  int64_t steps = 0;
  double kept = 0, first = 0;            // draft tokens kept; steps that kept one at all
  double most_kept = 0, most_first = 0;  // at most, on average
};

struct PerStep {
  double value = 0;
  std::optional<base::Interval> interval;  // 95 %, over prompts; absent for fewer than two
};

struct AcceptanceBound {
  int answers = 0;
  std::vector<KeptDrafts> prompts = {};
  bool whole_steps = true;    // most_kept is known, else most_first alone
  std::string without_bound;  // why neither is; "" = one is

  int64_t steps() const;
  // One of the sums over steps, divided by these: a ratio of two sums over prompts, its interval by
  // Student's t of the prompts' linear influences. 0 without steps.
  PerStep per_step(double KeptDrafts::*of) const;
  // most - kept: how much a better rule could bring.
  PerStep left(double KeptDrafts::*most, double KeptDrafts::*kept) const;
};

nlohmann::ordered_json to_json(const AcceptanceBound& bound);

// Looks at the steps of `method` while it lives; `beside`: a session of the same model that it has
// for itself. Changes nothing that the method emits. A planted fault (methods/faults.h) acts first.
// All must outlive the object. usage_error for a method that lacks the common verifier.
class AcceptanceMeter {
 public:
  AcceptanceMeter(methods::DecodingMethod& method, engine::Session& beside);
  ~AcceptanceMeter();
  AcceptanceMeter(const AcceptanceMeter&) = delete;
  AcceptanceMeter& operator=(const AcceptanceMeter&) = delete;
  // Before the answers to a prompt.
  void next_prompt();
  // Before each answer, with the prompt and the sampling (not greedy) of its request.
  void begin(std::span<const int32_t> prompt, const engine::SamplingParams& sampling);
  const AcceptanceBound& bound() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Of sampled answers of `method` in `session`. `plain` has the prompts' tokens; its answers are not
// used.
AcceptanceBound measure_acceptance(methods::DecodingMethod& method, engine::Session& session,
                                   engine::Session& beside, std::span<const PlannedPrompt> prompts,
                                   const PlainAnswers& plain, const Conversation& conversation,
                                   const AnswerOptions& options, base::Clock& clock,
                                   const std::function<void()>& tick);

}  // namespace evalrun::runners
