// How long a plan will take, from a second of measuring.
#pragma once
#include <cstdint>
#include <span>

#include "engine/base/clock.h"
#include "engine/session.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

struct Calibration {
  double prefill_s_per_token = 0;
  double step_s = 0;  // one row
};

// Prefills `prompt` and decodes a few rows on `session`, which is reset before and after.
Calibration calibrate(engine::Session& session, std::span<const int32_t> prompt,
                      base::Clock& clock);

// Seconds of one prompt in all arms, repeats and samples when every answer has full length and no
// method is faster than plain decoding: an upper estimate. Warm-up is not in it.
double estimate_seconds(const RunPlan& plan, const PlannedPrompt& prompt,
                        const Calibration& calibration);
// Of all its prompts.
double estimate_seconds(const RunPlan& plan, const Calibration& calibration);

}  // namespace evalrun::runners
