#include "runners/plan/waves.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

const std::string& task_of(const std::vector<PlannedPrompt>& prompts, int prompt) {
  return prompts[static_cast<size_t>(prompt)].record.task;
}

const std::vector<int>& prompts_of(const RunPlan& plan, int wave) {
  return plan.waves.at(static_cast<size_t>(wave));
}

}  // namespace

std::vector<std::vector<int>> make_waves(const std::vector<PlannedPrompt>& prompts, int size) {
  EVALRUN_CHECK(size >= 1, "waves of {} prompts", size);
  std::vector<std::vector<int>> waves;
  for (int i = 0; i < static_cast<int>(prompts.size()); ++i) {
    if (waves.empty() || static_cast<int>(waves.back().size()) == size ||
        task_of(prompts, waves.back().front()) != task_of(prompts, i))
      waves.emplace_back();
    waves.back().push_back(i);
  }
  return waves;
}

void check_batch_prompts(const std::vector<PlannedPrompt>& prompts, const Batches& batches) {
  if (batches.one()) return;
  std::vector<std::pair<std::string, int>> counts;  // by data set, in their order
  for (const PlannedPrompt& p : prompts) {
    if (counts.empty() || counts.back().first != p.record.task)
      counts.emplace_back(p.record.task, 0);
    ++counts.back().second;
  }
  for (const auto& [task, count] : counts)
    if (count < batches.largest())
      throw base::usage_error(
          fmt::format("data set {} has {} prompt{} in this run, fewer than a batch of {}", task,
                      count, count == 1 ? "" : "s", batches.largest()),
          fmt::format("take more prompts: --limit {} and more, where the data set has them; or "
                      "smaller sizes: --batch {}",
                      batches.largest(), count));
}

int wave_of(const RunPlan& plan, const Visit& visit) {
  EVALRUN_CHECK(!plan.waves.empty());
  return visit.block % static_cast<int>(plan.waves.size());
}

std::vector<int> prompts_of_turns(const RunPlan& plan) {
  std::vector<int> turns;
  for (const PlannedArm& arm : plan.arms)
    turns.push_back(arm.record.batch > 1 &&
                            plan.suite.batches.mode == methods::BatchMode::kContinuous
                        ? plan.suite.batches.wave_size()
                        : arm.record.batch);
  return turns;
}

std::vector<BatchGroup> batch_groups(const RunPlan& plan, int arm, int wave) {
  const auto batch = static_cast<size_t>(plan.arms.at(static_cast<size_t>(arm)).record.batch);
  const std::vector<int>& prompts = prompts_of(plan, wave);
  const bool whole = batch > 1 && plan.suite.batches.mode == methods::BatchMode::kContinuous;
  const size_t stride = whole ? prompts.size() : batch;
  std::vector<BatchGroup> groups;
  for (size_t begin = 0; begin < prompts.size(); begin += stride) {
    const size_t n = std::min(stride, prompts.size() - begin);
    BatchGroup group;
    const auto first = prompts.begin() + static_cast<std::ptrdiff_t>(begin);
    group.prompts.assign(first, first + static_cast<std::ptrdiff_t>(n));
    group.n_stored = static_cast<int>(n);
    for (int k = 0; group.prompts.size() < batch; ++k)
      group.prompts.push_back(filler_prompt(plan, wave, k));
    groups.push_back(std::move(group));
  }
  return groups;
}

int filler_prompt(const RunPlan& plan, int wave, int k) {
  EVALRUN_CHECK(k >= 0, "filler {}", k);
  const std::string& task = task_of(plan.prompts, prompts_of(plan, wave).front());
  const auto of_task = [&](const PlannedPrompt& p) { return p.record.task == task; };
  const auto begin = std::find_if(plan.prompts.begin(), plan.prompts.end(), of_task);
  const auto end = std::find_if_not(begin, plan.prompts.end(), of_task);
  return static_cast<int>(begin - plan.prompts.begin() + k % (end - begin));
}

}  // namespace evalrun::runners
