// Lossless sampling by making every decision again. A method that puts drawn drafts to a rejection
// test promises plain decoding's distribution and not its tokens. No number of draws proves that.
// So its steps are audited: a second implementation (plain_distribution.h) makes every decision of
// sampled steps again, from
// - plain decoding's own logits, one row a forward, in a session beside the method's;
// - the draft, and the distribution that the drafter reports for it;
// - the numbers, which are keyed by what they decide (base::KeyedChance).
// Draft tokens must be the draws of the reported distribution, tests must pass and fail as they
// did, and what is drawn after a refusal must be the draw of what is left of the target's
// distribution (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; several children: Miao et al.
// 2024, arXiv 2305.09781, section 4.3). Where whole paths are tested, all tests of a step are made
// again, for which the second session also follows drafts that were refused (path_audit.h). A wrong
// rule is found at the first decision that it
// changes.
//
// What it does not see: a fault that changed no decision of these steps. By the same numbers a
// fault of total variation D gives another token at a share D of the places or more. So one of 3/N
// is found in N places with a probability of 95 %. A place with several decisions counts once.
//
// A device draws drafts and tries them itself (engine/rejection.h), and their distributions never
// leave it. While an audit lives the method has the host do both, by the rule above; where nothing
// was drawn the device's draws are audited as they are. on_host says so.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/session.h"
#include "methods/method.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"
#include "runners/verify/token_identity.h"

namespace evalrun::runners {

struct AuditDifference {
  std::string task, prompt;
  int index = 0;  // of the answer's tokens
  std::string what;
};

struct DecisionAudit {
  int answers = 0, equal = 0;
  int64_t tokens = 0, steps = 0;
  int64_t drafts = 0;     // draft tokens drawn again
  int64_t tests = 0;      // acceptance tests made again
  int64_t refused = 0;    // of them
  int64_t draws = 0;      // target tokens drawn again
  int64_t redraws = 0;    // of them, after a refusal
  int64_t undecided = 0;  // decisions within rounding of the other one, which were followed
  int64_t borders = 0;    // of them, where the top-p set is full but for rounding
  bool on_host = false;   // drawn drafts were verified there, in a session that can try them itself
  std::vector<AuditDifference> first;  // of each answer that differs; nothing after it is audited
  std::string blocked;                 // why nothing could be audited; empty = it could
  double step_seconds = 0, audit_seconds = 0;

  int64_t decisions() const { return tests + draws; }
  // Tokens that were decided: a test that passed, or a draw, ends the decisions about one. Of a
  // path that passed its test one is counted.
  int64_t places() const { return tests - refused + draws; }
  // The smallest total variation, on average over the places, that is found in as many with a
  // probability of 95 %; 1 without any.
  double smallest_found() const;
};

// Decisions within rounding are a few in 10^9; more of them than this share show another fault.
inline constexpr double kMostUndecided = 1e-4;

// Audits generations of `method` while it lives, in `beside`: a session of the same model that it
// has for itself. Nothing that the method emits is changed. A planted fault (methods/faults.h) acts
// first, so that it is seen. All must outlive the object. usage_error for a method that lacks the
// common verifier.
class DecisionAuditor {
 public:
  DecisionAuditor(methods::DecodingMethod& method, engine::Session& beside, base::Clock& clock);
  ~DecisionAuditor();
  DecisionAuditor(const DecisionAuditor&) = delete;
  DecisionAuditor& operator=(const DecisionAuditor&) = delete;
  // Before a generation, with the prompt, sampling (not greedy) and seed of its request.
  void begin(std::span<const int32_t> prompt, const engine::SamplingParams& sampling,
             uint64_t seed);
  // After it, with its tokens; task and prompt are for what is reported.
  void end(std::span<const int32_t> tokens, const std::string& task, const std::string& prompt);
  const DecisionAudit& audit() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Sampled answers of `method` in `session`, audited. `plain` has the prompts' tokens; its answers
// are not used.
DecisionAudit audit_decisions(methods::DecodingMethod& method, engine::Session& session,
                              engine::Session& beside, std::span<const PlannedPrompt> prompts,
                              const PlainAnswers& plain, const Conversation& conversation,
                              const AnswerOptions& options, base::Clock& clock,
                              const std::function<void()>& tick);

}  // namespace evalrun::runners
