// Cost-aware drafting (adaptive=true of every method): how much of a draft is worth verifying, from
// what rows cost on this machine (T(n)/T(1), engine/cost/row_cost.h) and from how much of the
// recent drafts was accepted. Wraps any drafter; the tokens are the same, only steps and speed
// differ.
//
// The model: a drafted node is accepted with probability alpha(class, depth, rank), given that its
// parent was; alpha is estimated from the nodes of this generation, newer ones counting more, and
// starts from a prior worth a few nodes. The best tree of n nodes takes the n nodes of the largest
// joint probability, which are connected because a child's is never larger than its parent's. Of
// all n the one with the largest
//     (1 + sum of joint probabilities) / (T(1 + n) / T(1) + draft cost)
// is verified; n = 0 is plain decoding.
//
// What is not verified still teaches when drafting is free (look-ups): the whole draft is
// remembered and held against the tokens that come, so that a method that has switched itself off
// knows when to switch on again, at no cost. A method whose drafts cost something (draft_cost() >
// 0) tries at once, before there is anything to catch up with, then while it is off ever more
// seldom, and only from a credit: 2 % of the first 64 tokens, 0.5 % of what goes by plainly, and
// what it has gained.
//
// Side rows (windows, branches) are computed where they are all but free, T(n)/T(1) at most 1.03
// with all of them, or while a credit of 3 % of the first 64 tokens and what was gained covers what
// they lose against plain decoding. Text on which nothing is ever accepted costs about 3 % at most.
#pragma once
#include <memory>

#include "engine/cost/row_cost.h"
#include "methods/registration.h"

namespace evalrun::methods {

// T(n)/T(1): from the table with a fifth on top of what rows cost there, or 5 % a row where there
// is no table (in plans and tests).
class RowPrice {
 public:
  explicit RowPrice(const engine::RowCostTable* table);
  double operator()(int rows) const;  // rows >= 1
  // Most rows whose price is at most `limit`, at least 1.
  int affordable(double limit) const;

 private:
  std::vector<double> price_;  // [rows - 1]
};

inline constexpr double kFreeRows = 1.03;

std::unique_ptr<Drafter> make_adaptive(std::unique_ptr<Drafter> drafter,
                                       const engine::RowCostTable* costs);

// Parameters of a method that can be adaptive: this one, bound to Shape::adaptive; its own follow.
template <typename Shape>
Parameters<Shape> adaptive_parameters() {
  return Parameters<Shape>{}
      .add("adaptive", &Shape::adaptive,
           "verify only as much of a draft as pays here: measured T(n)/T(1) against recent "
           "acceptance")
      .with(&ParamInfo::steps_at, {"true", StepReproducibility::kFollowMachine});
}
// The drafter with the verifier, and adaptive where that is asked for.
std::unique_ptr<DecodingMethod> finish_method(std::unique_ptr<Drafter> drafter, bool adaptive,
                                              const MethodBuildContext& context);

}  // namespace evalrun::methods
