// Shares of answers of a kind, with intervals of as many independent prompts as would vary as much.
#pragma once
#include <optional>
#include <span>

#include "engine/base/stats.h"
#include "reports/data/design.h"

namespace evalrun::reports {

// Share of answers of a kind: the mean over prompts of the share among a prompt's samples. Its 95 %
// interval is Wilson's of n_eff independent prompts: as many as would have the design's standard
// error, at most all. Absent for a single unit of the design.
struct AnswerShare {
  double value = 0, n_eff = 0;
  std::optional<base::Interval> interval;
};

// `shares`: of each prompt of the design, one prompt at least.
AnswerShare answer_share(std::span<const double> shares, const Design& design);
// To the bit the same of shares that are all 1 (`value`), or all 0, without looking at them.
AnswerShare equal_answer_share(bool value, size_t prompts, const Design& design);

// As many independent values of that variance as have the standard error of the mean of `values`,
// at most one a prompt; nullopt for a single unit.
std::optional<double> independent_prompts(std::span<const double> values, const Design& design,
                                          double variance);

}  // namespace evalrun::reports
