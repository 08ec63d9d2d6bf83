#include "runners/plan/estimate.h"

#include <algorithm>
#include <array>
#include <set>

#include "engine/base/error.h"

namespace evalrun::runners {

Calibration calibrate(engine::Session& session, std::span<const int32_t> prompt,
                      base::Clock& clock) {
  EVALRUN_CHECK(prompt.size() >= 2 && session.capacity() > 16);
  constexpr size_t kMostPrefill = 256;
  constexpr int kSteps = 8;  // the first is cold; the median of the rest counts
  const auto room = static_cast<size_t>(session.capacity() - kSteps);
  const auto body = prompt.first(std::min({prompt.size(), kMostPrefill, room}));
  session.reset();
  const int64_t begin = clock.now_ns();
  session.prefill(body);
  Calibration result;
  result.prefill_s_per_token =
      static_cast<double>(clock.now_ns() - begin) * 1e-9 / static_cast<double>(body.size());
  std::array<int64_t, kSteps> times = {};
  for (int64_t& time : times) {
    const int64_t start = clock.now_ns();
    const engine::Row row = {.token = body.back()};
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    session.forward(request);
    const int root = 0;
    session.commit({&root, 1});
    time = clock.now_ns() - start;
  }
  std::sort(times.begin() + 1, times.end());
  result.step_s = static_cast<double>(times[1 + (kSteps - 1) / 2]) * 1e-9;
  session.reset();
  return result;
}

double estimate_seconds(const RunPlan& plan, const PlannedPrompt& p,
                        const Calibration& calibration) {
  const auto n_turns = static_cast<double>(p.prompt.turns.size());
  // A later turn keeps the first prompt in the cache and prefills the answer and its own message.
  const double prefill = n_turns > 1 ? p.most_tokens - p.max_new : p.first_turn_tokens;
  const double seconds =
      prefill * calibration.prefill_s_per_token + n_turns * p.max_new * calibration.step_s;
  double visits = static_cast<double>(plan.arms.size()) * plan.suite.repeats * plan.suite.samples;
  // A replay decodes every prompt once more by every model, unmeasured.
  if (plan.suite.replay) {
    std::set<const engine::Model*> models;
    for (const PlannedArm& arm : plan.arms) models.insert(arm.model.get());
    visits += static_cast<double>(models.size());
  }
  return seconds * visits;
}

double estimate_seconds(const RunPlan& plan, const Calibration& calibration) {
  double seconds = 0;
  for (const PlannedPrompt& p : plan.prompts) seconds += estimate_seconds(plan, p, calibration);
  return seconds;
}

}  // namespace evalrun::runners
