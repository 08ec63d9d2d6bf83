#include "reports/figures/parts.h"

#include <map>
#include <set>
#include <utility>

#include "reports/data/design.h"
#include "reports/data/id_numbers.h"
#include "reports/data/pair_columns.h"

namespace evalrun::reports {

namespace {

constexpr int kNoPart = -1;

// The parts of the data sets that have two or more.
struct Parts {
  std::vector<std::pair<std::string, std::string>> names;  // data set and part, in their order
  std::vector<int> of_prompt;                              // by its number; kNoPart
};

Parts parts_by(const RunData& data, const PromptNumbers& numbers, std::string PromptInfo::*field) {
  std::map<std::string, std::set<std::string>> by_task;
  for (const PromptInfo& p : data.prompts)
    if (!(p.*field).empty()) by_task[p.task].insert(p.*field);
  std::erase_if(by_task, [](const auto& part) { return part.second.size() < 2; });
  Parts parts;
  std::map<std::pair<std::string, std::string>, int> numbers_of;
  for (const auto& [task, names] : by_task)
    for (const std::string& name : names) {
      numbers_of[{task, name}] = static_cast<int>(parts.names.size());
      parts.names.emplace_back(task, name);
    }
  parts.of_prompt.assign(numbers.size(), kNoPart);
  for (const PromptInfo& p : data.prompts)
    if (const auto part = numbers_of.find({p.task, p.*field}); part != numbers_of.end())
      parts.of_prompt[numbers.of(p.id)] = part->second;
  return parts;
}

// An arm's cells by part.
std::vector<ArmCells> cells_by_part(const RunData& data, int64_t arm_id,
                                    const PromptNumbers& numbers, const Parts& parts) {
  std::vector<ArmCells> by_part(parts.names.size());
  for (const auto& [cell, sample] : cells_of(data, arm_id))
    if (const int part = parts.of_prompt[numbers.of(cell.first)]; part != kNoPart)
      by_part[static_cast<size_t>(part)][cell] = sample;
  return by_part;
}

}  // namespace

std::vector<PartSpeed> speed_by_part(const RunData& data, Estimator estimator) {
  const PromptNumbers numbers(data.prompts);
  const PromptDesigns designs(data.prompts, Scope::kSameKind);
  std::vector<PartSpeed> list;
  for (const auto& [axis, field] : {std::pair("category", &PromptInfo::category),
                                    std::pair("language", &PromptInfo::language)}) {
    const Parts parts = parts_by(data, numbers, field);
    if (parts.names.empty()) continue;
    std::map<int64_t, std::vector<ArmCells>> references;  // by arm
    for (const ArmInfo& arm : data.arms) {
      const ArmInfo* reference = data.reference(arm);
      if (!arm.drafts() || reference == nullptr) continue;
      const auto own = cells_by_part(data, arm.id, numbers, parts);
      auto& base = references[reference->id];
      if (base.empty()) base = cells_by_part(data, reference->id, numbers, parts);
      for (size_t i = 0; i < parts.names.size(); ++i) {
        if (own[i].empty() || base[i].empty()) continue;
        const PairColumns pairs = pair_columns(own[i], base[i], estimator);
        const auto estimate =
            reports::speedup(pairs.headline(), estimator, designs.of(pairs.prompts, arm.batch));
        if (!estimate) continue;
        PartSpeed part{arm.label,
                       parts.names[i].first,
                       axis,
                       parts.names[i].second,
                       static_cast<int64_t>(pairs.prompts.size()),
                       estimate->value,
                       estimate->interval,
                       estimate->n_eff,
                       std::nullopt};
        if (pairs.method.steps > 0) part.tau = pairs.method.emitted / pairs.method.steps;
        list.push_back(std::move(part));
      }
    }
  }
  return list;
}

}  // namespace evalrun::reports
