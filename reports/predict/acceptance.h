// How drafts of an arm fared, as stored steps tell it: along the answer, by depth with what was
// never asked kept apart from what was refused, and by where steps began.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "reports/predict/answer_steps.h"

namespace evalrun::reports {

// Draft tokens that the verifier decided on, and those it accepted.
struct Decided {
  double tested = 0, accepted = 0;
  std::optional<double> share() const {
    return tested > 0 ? std::optional(accepted / tested) : std::nullopt;
  }
};

// Steps that begin in one part of their answer.
struct AnswerPart {
  double steps = 0, emitted = 0;
  Decided tokens;      // on the paths that were walked
  double unclear = 0;  // refused or not drafted, as below: up to as many more were tested
};

// Steps that came as far as this depth: all drafts before it accepted. They add up to those that
// accepted the depth before; at depth 1, to all steps.
struct DepthOutcome {
  double accepted = 0, refused = 0;
  double not_drafted = 0;  // the draft had ended: nothing was asked
  double unclear = 0;      // one of these two: a tree, of which too little is stored (StepEndings)
  double cut = 0;          // the stop rule ended the step: nothing is known
};

// What the step before had come to.
enum class Before { kNothing, kRefused, kWhole, kUndrafted, kUnclear };
inline constexpr int kBefores = 5;
const char* to_string(Before b);  // "the answer began", ...

struct ArmAcceptance {
  std::string arm, method;
  int n_prompts = 0;
  static constexpr size_t kParts = 4;  // quarters of the answer's own length
  std::array<AnswerPart, kParts> parts = {};
  std::vector<DepthOutcome> depths;                    // [depth - 1]
  std::array<Decided, kBefores> first_by_before = {};  // first draft tokens of steps that drafted
  Decided first;                                       // all of these
  // First draft tokens at places where every arm of the method began a step and drafted. Only where
  // the method has several arms that gave the same answers.
  std::optional<Decided> first_shared;
};

// All finished answers of each arm that drafts, with one repeat each.
std::vector<ArmAcceptance> acceptance_of_arms(const results::ResultStore& store, const RunData& run,
                                              const std::vector<const ArmInfo*>& arms,
                                              const SharedAnswers& shared);

}  // namespace evalrun::reports
