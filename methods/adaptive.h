// Cost-aware drafting (adaptive=true of every method): how much of a draft is worth verifying, from
// what rows cost on this machine (T(n)/T(1), engine/cost/row_cost.h) and from how much of the
// recent drafts was accepted. Wraps any drafter; the tokens are the same, only steps and speed
// differ.
//
// The model: a drafted node is accepted with probability alpha(class, depth, rank), given that its
// parent was; alpha is estimated from the nodes of this generation, newer ones counting more, and
// starts from a prior worth a few nodes. The tree that gives the most tokens a plain step's time is
// verified, none where that is plain decoding (methods/draft_choice.h).
//
// What is not verified still teaches when drafting is free (look-ups): the whole draft is
// remembered and held against the tokens that come, so that a method that has switched itself off
// knows when to switch on again, at no cost. A look-up whose questions show (Drafter::
// rarest_query(): `rest`) is asked ever more seldom where nothing comes of it
// (methods/idle_backoff.h). In a step that verifies nothing a drafter learns as its
// Drafter::idle_wants() says (`recycling`). A method whose drafts cost something (draft_cost() >
// 0) tries at once, before there is anything to catch up with, then while it is off ever more
// seldom, and only from a credit: 2 % of the first 64 tokens, 0.5 % of what goes by plainly, and
// what it has gained.
//
// Side rows (windows, branches) are computed where they are all but free, T(n)/T(1) at most 1.03
// with all of them, or while a credit of 3 % of the first 64 tokens and what was gained covers what
// they lose against plain decoding. Text on which nothing is ever accepted costs about 3 % at most.
#pragma once
#include <memory>
#include <utility>

#include "engine/cost/row_cost.h"
#include "methods/draft_choice.h"
#include "methods/draft_rule.h"
#include "methods/registration.h"

namespace evalrun::methods {

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
                                              const MethodBuildContext& context,
                                              RejectionRule rule = {});
// How a method verifies drawn drafts: by Shape::rule or Shape::draft.rule where it draws.
template <typename Shape>
RejectionRule rejection_of(const Shape& shape) {
  if constexpr (requires { shape.draft.rule; })
    return rejection_by(shape.draft.rule);
  else if constexpr (requires {
                       shape.rule;
                       shape.paths;
                     })
    return rejection_by(shape.rule, shape.paths);
  else if constexpr (requires { shape.rule; })
    return rejection_by(shape.rule);
  else
    return {};
}
// Says of a method that it is what `make(shape, context)` drafts, with the common verifier:
// MethodInfo::drafter and build. Adaptive where Shape has the member and it is set.
template <typename Shape, typename Make>
void draft_by(MethodInfo& info, const Parameters<Shape>& parameters, Make make) {
  info.drafter = parameters.bound(make);
  info.build = parameters.bound([make](const Shape& shape, const MethodBuildContext& context) {
    bool adaptive = false;
    if constexpr (requires { shape.adaptive; }) adaptive = shape.adaptive;
    return finish_method(make(shape, context), adaptive, context, rejection_of(shape));
  });
}

}  // namespace evalrun::methods
