// A plan cut into parts for several machines, by whole prompts: all arms, repeats and samples of a
// prompt, and the baseline a second time, stay on one machine, so that what is compared was
// measured beside each other. Waves of batches and groups of prompts (datasets::Prompt::group) stay
// whole as well.
//
// The cut is a pure function of prompts and lengths, the same on every machine. Keys, seeds, blocks
// and slots are those of the undivided plan.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runners/plan/plan.h"

namespace evalrun::runners {

// "2/3": the second of three. usage_error for anything else.
results::Shard parse_shard(const std::string& text);

// What a prompt takes, in times of a prompt token: a token of the answer counts as kNewTokenCost of
// them, whatever the machine.
inline constexpr int64_t kNewTokenCost = 8;
int64_t shard_cost(const PlannedPrompt& prompt);

// Prompts that one process measures, as indices of the plan: a wave, or the waves of a group of
// prompts. In the order of the plan.
std::vector<std::vector<int>> plan_units(const RunPlan& plan);

// The number of its shard, from 1, of each prompt. What stays together goes to the shard that has
// the least so far, the longest first; ties go to the lower number. usage_error where there are
// fewer of those than shards.
std::vector<int> cut_plan(const RunPlan& plan, int count);

// usage_error for a plan whose prompts cannot be measured by several processes: arms that carry
// what they learnt from prompt to prompt, and `auto`, which is one machine's choice. `option` is
// the one that asks for it.
void check_can_be_cut(const RunPlan& plan, const std::string& option);

// Makes the whole plan one of that shard: its schedule, its run's key. usage_error where
// check_can_be_cut() says so.
void take_shard(const results::Shard& shard, RunPlan& plan);

// Whether the prompt of that index is measured here.
bool in_shard(const RunPlan& plan, size_t prompt);

}  // namespace evalrun::runners
