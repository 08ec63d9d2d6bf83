#include "runners/plan/shards.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"

namespace evalrun::runners {
namespace {

// Prompts that stay together, as indices of the plan.
struct ShardUnit {
  std::vector<int> prompts;
  int64_t cost = 0;
};

// Sets of waves that have a group of prompts in common are one.
class WaveSets {
 public:
  explicit WaveSets(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  size_t root(size_t wave) {
    while (parent_[wave] != wave) wave = parent_[wave] = parent_[parent_[wave]];
    return wave;
  }
  // The lower one is the root: the order of units is that of their first waves.
  void join(size_t a, size_t b) {
    const auto [low, high] = std::minmax({root(a), root(b)});
    parent_[high] = low;
  }

 private:
  std::vector<size_t> parent_;
};

std::vector<ShardUnit> units_of(const RunPlan& plan) {
  WaveSets sets(plan.waves.size());
  std::map<std::string, size_t> first_of_group;
  for (size_t w = 0; w < plan.waves.size(); ++w)
    for (const int p : plan.waves[w]) {
      const results::PromptRecord& record = plan.prompts[static_cast<size_t>(p)].record;
      if (record.group.empty()) continue;
      const std::string group =
          record.group.starts_with('/') ? record.group : record.task + "\n" + record.group;
      const auto [first, added] = first_of_group.emplace(group, w);
      if (!added) sets.join(first->second, w);
    }
  std::map<size_t, ShardUnit> by_root;
  for (size_t w = 0; w < plan.waves.size(); ++w) {
    ShardUnit& unit = by_root[sets.root(w)];
    for (const int p : plan.waves[w]) {
      unit.prompts.push_back(p);
      unit.cost += shard_cost(plan.prompts[static_cast<size_t>(p)]);
    }
  }
  std::vector<ShardUnit> units;
  for (auto& [root, unit] : by_root) units.push_back(std::move(unit));
  return units;
}

}  // namespace

results::Shard parse_shard(const std::string& text) {
  const size_t slash = text.find('/');
  const auto number = [&](const std::string& part) {
    return base::parse_number<int>(part).value_or(0);
  };
  results::Shard shard{0, 0};
  if (slash != text.npos) shard = {number(text.substr(0, slash)), number(text.substr(slash + 1))};
  if (shard.number < 1 || shard.count < shard.number)
    throw base::usage_error(fmt::format("--shard {}: is not I/N with 1 <= I <= N", text),
                            "machine 2 of 3 measures --shard 2/3");
  return shard;
}

int64_t shard_cost(const PlannedPrompt& prompt) {
  const auto turns = static_cast<int64_t>(prompt.prompt.turns.size());
  return prompt.least_tokens - prompt.max_new + kNewTokenCost * turns * prompt.max_new;
}

std::vector<int> cut_plan(const RunPlan& plan, int count) {
  const std::vector<ShardUnit> units = units_of(plan);
  if (static_cast<size_t>(count) > units.size())
    throw base::usage_error(
        fmt::format("{} shards, but only {} can be filled: the plan has {} prompts{}", count,
                    units.size(), plan.prompts.size(),
                    units.size() < plan.prompts.size()
                        ? ", and prompts of a wave or a group stay together"
                        : ""),
        fmt::format("cut it into {} shards or fewer", units.size()));
  std::vector<size_t> longest_first(units.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return units[a].cost > units[b].cost; });
  std::vector<int64_t> load(static_cast<size_t>(count), 0);
  std::vector<int> numbers(plan.prompts.size(), 0);
  for (const size_t u : longest_first) {
    const auto least = std::min_element(load.begin(), load.end());  // the first of equal ones
    // Also where a prompt costs nothing, shards that are empty come first.
    *least += units[u].cost + 1;
    for (const int p : units[u].prompts)
      numbers[static_cast<size_t>(p)] = static_cast<int>(least - load.begin()) + 1;
  }
  return numbers;
}

std::vector<std::vector<int>> plan_units(const RunPlan& plan) {
  std::vector<std::vector<int>> prompts;
  for (ShardUnit& unit : units_of(plan)) prompts.push_back(std::move(unit.prompts));
  return prompts;
}

void check_can_be_cut(const RunPlan& plan, const std::string& option) {
  if (!plan.chosen.empty())
    throw base::usage_error(
        fmt::format("{} with --methods auto: the choice of `evalrun tune method` is one machine's",
                    option),
        fmt::format("name the method on all machines: --methods {}", plan.chosen));
  for (const PlannedArm& arm : plan.arms) {
    const auto steps = arm.record.settings.find("steps");
    if (steps != arm.record.settings.end() && steps->second == "carry state")
      throw base::usage_error(
          fmt::format("{} with {}: it drafts from what it learnt from the prompts before, which "
                      "are not the same in a part of them",
                      option, arm.record.label),
          "measure that method in a run of its own by one process, or without what it carries "
          "(evalrun list methods)");
  }
}

void take_shard(const results::Shard& shard, RunPlan& plan) {
  check_can_be_cut(plan, "--shard");
  plan.shard_of = cut_plan(plan, shard.count);
  plan.shard = shard;
  std::erase_if(plan.schedule,
                [&](const Visit& v) { return !in_shard(plan, static_cast<size_t>(v.prompt)); });
  plan.run.key = plan.whole.key;
}

bool in_shard(const RunPlan& plan, size_t prompt) {
  return !plan.shard || plan.shard_of[prompt] == plan.shard->number;
}

}  // namespace evalrun::runners
