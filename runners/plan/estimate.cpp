#include "runners/plan/estimate.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>

#include "engine/base/error.h"
#include "runners/plan/shards.h"

namespace evalrun::runners {
namespace {

// How often a prompt of a data set of `n_prompts` is decoded by an arm of this batch, fillers
// counted.
double with_fillers(int n_prompts, int batch) {
  return static_cast<double>((n_prompts + batch - 1) / batch * batch) / n_prompts;
}

// What a prompt pays of a step of plain decoding of `batch` sequences, in steps of one.
double part_of_step(const MeasuredRowCost& costs, int batch) {
  if (costs.table.empty()) return 1.0 / batch;
  return std::max(1.0, costs.of_batch(batch).ms(1) / costs.table.ms(1)) / batch;
}

// How often a prompt is decoded plainly beside what is measured, at most: in a replay once by every
// model, and for arms that need answers once in each sample.
double unmeasured_answers(const RunPlan& plan) {
  std::set<const engine::Model*> models;
  for (const PlannedArm& arm : plan.arms)
    if (plan.suite.replay || arm.needs_answer) models.insert(arm.model.get());
  const int each = plan.suite.replay ? 1 : plan.suite.samples;
  return static_cast<double>(models.size()) * each;
}

}  // namespace

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

StepPrice price_of(const methods::LargestStep& step, const engine::RowCostTable& table) {
  EVALRUN_CHECK(!table.empty());
  if (step.rows < 1) return {};
  // A forward of more rows costs no less: where a table says so it is noise.
  const auto ratio = [&](int rows) { return std::max(1.0, table.ratio(std::max(1, rows))); };
  double plain_steps = ratio(step.rows);
  for (const int rows : step.draft_rows) plain_steps += step.draft_cost * ratio(rows);
  if (step.limit > 0) return {step.rows, std::min(plain_steps, step.limit)};
  return {step.rows, plain_steps, step.rows > 1 ? step.rows / plain_steps : 0};
}

std::optional<double> acceptance_needed(const StepPrice& price) {
  if (price.ceiling < 1) return std::nullopt;  // 0 among them
  const auto tokens = [&](double acceptance) {
    double sum = 0, joint = 1;
    for (int row = 0; row < price.rows; ++row, joint *= acceptance) sum += joint;
    return sum;
  };
  double low = 0, high = 1;  // 1 token, and as many as there are rows
  for (int halving = 0; halving < 40; ++halving) {
    const double middle = (low + high) / 2;
    (tokens(middle) < price.plain_steps ? low : high) = middle;
  }
  return high;
}

bool has_usual_steps(const results::ArmRecord& arm) { return !arm.settings.contains("steps"); }

std::string hopeless_text(const std::string& label, const StepPrice& price) {
  if (price.ceiling <= 0) return {};
  const std::string step =
      fmt::format("a step of {} rows costs {:.3g} plain steps here", price.rows, price.plain_steps);
  const std::optional<double> needed = acceptance_needed(price);
  if (!needed)
    return fmt::format(
        "{}: cannot be faster than plain decoding in its largest steps: {}, and gives {:.2f}x with "
        "every draft token accepted",
        label, step, price.ceiling);
  if (*needed <= kHopelessAcceptance) return {};
  return fmt::format(
      "{}: unlikely to be faster than plain decoding in its largest steps: {}, and needs tau "
      "{:.3g}, {:.1f} % of draft tokens accepted at each depth ({:.2f}x if all are)",
      label, step, price.plain_steps, 100 * *needed, price.ceiling);
}

std::vector<StepPrice> step_prices(const RunPlan& plan) {
  std::vector<StepPrice> prices;
  if (plan.row_cost->table.empty()) return prices;
  for (const PlannedArm& arm : plan.arms)
    prices.push_back(arm.endpoint ? StepPrice{}
                                  : price_of(arm.build()->largest_step(),
                                             plan.row_cost->of_batch(arm.record.batch)));
  return prices;
}

double estimate_seconds(const RunPlan& plan, const PlannedPrompt& p, const Calibration& calibration,
                        std::span<const StepPrice> prices) {
  EVALRUN_CHECK(prices.empty() || prices.size() == plan.arms.size(), "{} prices of {} arms",
                prices.size(), plan.arms.size());
  const auto n_turns = static_cast<double>(p.prompt.turns.size());
  // A later turn keeps the first prompt in the cache and prefills the answer and its own message.
  const double prefill = n_turns > 1 ? p.most_tokens - p.max_new : p.first_turn_tokens;
  const double prefill_s = prefill * calibration.prefill_s_per_token;
  const double plain_s = n_turns * p.max_new * calibration.step_s;
  const auto n_prompts = static_cast<int>(std::count_if(
      plan.prompts.begin(), plan.prompts.end(),
      [&](const PlannedPrompt& other) { return other.record.task == p.record.task; }));
  double seconds = 0;
  for (size_t arm = 0; arm < plan.arms.size(); ++arm) {
    const int batch = plan.arms[arm].record.batch;
    const double step = prices.empty() ? 1 : prices[arm].plain_steps;
    seconds += with_fillers(n_prompts, batch) *
               (prefill_s + plain_s * step * part_of_step(*plan.row_cost, batch));
  }
  seconds *= plan.suite.repeats * plan.suite.samples;
  return seconds + unmeasured_answers(plan) * (prefill_s + plain_s);
}

double estimate_seconds(const RunPlan& plan, const Calibration& calibration,
                        std::span<const StepPrice> prices) {
  double seconds = 0;
  for (size_t i = 0; i < plan.prompts.size(); ++i)
    if (in_shard(plan, i)) seconds += estimate_seconds(plan, plan.prompts[i], calibration, prices);
  return seconds;
}

}  // namespace evalrun::runners
