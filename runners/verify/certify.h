// Makes the certificates of all arms of a plan: what `evalrun verify` does.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "runners/measure/runner.h"
#include "runners/plan/plan.h"
#include "runners/verify/certificate.h"

namespace evalrun::runners {

struct CertifyRequest {
  PlanRequest plan;  // greedy suite: methods, tasks, max_new; first turns are decoded
  bool greedy = true, sampled = true, law = true, steps = true, texts = true;
  AnswerOptions answers{{1.0, 0, 1.0}, 1, 1};  // of `sampled`
  bool bound = false;                          // with `sampled`: acceptance_bound.h, not judged
  PlainLawOptions law_options;                 // on the rows of the step test's places
  int contexts = 4;                            // places of the step test, early and late ones
  int text_prompts = 6;                        // of the text test
  StepDistributionOptions step_options;
  TextDistributionOptions text_options;
  std::string fault;  // planted in every arm (methods/faults.h), to see that it is found
  // Its stop, asked between prompts, ends with an Error (kInterrupted).
  RunnerOptions runner;
};

// The planted wrong acceptance that the sampling tests must refuse.
inline constexpr const char* kNegativeControl = "wrong-accept:25%";

// n of them, evenly over the list; one at least.
std::vector<PlannedPrompt> spread_prompts(const std::vector<PlannedPrompt>& prompts, int n);
// Those in whose answers `contexts` places of the step test are looked for.
std::vector<PlannedPrompt> place_prompts(const std::vector<PlannedPrompt>& prompts, int contexts);
// Two places in each sampled answer of plain decoding: after its first token, where a method
// starts, and late in it, where it is led for a while first. `answers`: one to each of `prompts`.
std::vector<StepContext> step_places(std::span<const PlannedPrompt> prompts,
                                     const PlainAnswers& answers);

// Every arm but plain decoding itself. Prompts too long for the context are left out, which
// `progress` is told. Arms for which `known` answers true are left out; `done`
// gets each certificate as soon as it is whole. Throws what make_plan throws, and usage_error when
// there is no arm to certify.
void certify(const CertifyRequest& request, base::Clock& clock,
             const std::function<bool(const results::ArmRecord&, const std::string& tests)>& known,
             const std::function<void(const Certificate&)>& done);

}  // namespace evalrun::runners
