// How long a plan will take, from a second of measuring.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/cost/row_cost.h"
#include "engine/session.h"
#include "methods/method.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

struct Calibration {
  double prefill_s_per_token = 0;
  double step_s = 0;  // one row
};

// Prefills `prompt` and decodes a few rows on `session`, which is reset before and after.
Calibration calibrate(engine::Session& session, std::span<const int32_t> prompt,
                      base::Clock& clock);

// Whether the arm's largest step says anything of its usual ones: not where row costs or what is
// carried from answer to answer decide about each step (`hybrid`, tree=auto, adaptive=true).
bool has_usual_steps(const results::ArmRecord& arm);
// What a step of an arm costs at most, in steps of plain decoding of as many sequences. So many
// tokens must such a step give (tau) to be worth it.
struct StepPrice {
  int rows = 0;  // of the target's forward, at most; 0 = the method does not say
  double plain_steps = 1;
  // Speedup of such steps where every row but the root is a draft token that is accepted: no tree
  // and no window gives more. 0 = not known, nothing is drafted, or only what pays is.
  double ceiling = 0;
};
// By T(n)/T(1) of all forwards of the largest step, or the method's own limit where that is less;
// 1 where the method does not say how many rows there are. `table` must not be empty.
StepPrice price_of(const methods::LargestStep& step, const engine::RowCostTable& table);
// How often each draft token of a chain of that many rows must be accepted, given that the one
// before was, to be as fast as plain decoding: 1 + a + a^2 + ... = plain_steps. Trees need more of
// each of their levels. Absent where the ceiling is not known, or below 1.
std::optional<double> acceptance_needed(const StepPrice& price);
// Why an arm is not worth measuring as it is, for a user; "" = no reason is known. `label`: of the
// arm.
inline constexpr double kHopelessAcceptance = 0.9;  // more is needed
std::string hopeless_text(const std::string& label, const StepPrice& price);
// Of every arm, whose method is built for it, by what rows cost at its batch; of a server nothing
// is known. Empty where plan.row_cost has no table.
std::vector<StepPrice> step_prices(const RunPlan& plan);

// Seconds of one prompt in all arms, repeats and samples when every answer has full length and
// takes a step for each of its tokens, as if no draft token was accepted. `prices`: of the arms;
// empty = all steps cost as much as plain decoding's. A step of B sequences costs T(1) of theirs
// over T(1) of one, of which the prompt has its part; where T(n) is not known, as much as of one.
// Fillers of the data set's last batch are shared out among its prompts. Warm-up and what drafters
// make of a prompt are not in it.
double estimate_seconds(const RunPlan& plan, const PlannedPrompt& prompt,
                        const Calibration& calibration, std::span<const StepPrice> prices = {});
// Of all its prompts, of a shard those in it.
double estimate_seconds(const RunPlan& plan, const Calibration& calibration,
                        std::span<const StepPrice> prices = {});

}  // namespace evalrun::runners
