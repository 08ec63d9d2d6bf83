#include "reports/figures/parts.h"

#include <map>
#include <set>

#include "reports/data/pairing.h"

namespace evalrun::reports {

namespace {

// An arm's cells by data set and part, read once.
std::map<std::pair<std::string, std::string>, ArmCells> cells_by_part(
    const ArmCells& cells, const std::map<int64_t, const PromptInfo*>& prompts,
    std::string PromptInfo::*field) {
  std::map<std::pair<std::string, std::string>, ArmCells> parts;
  for (const auto& [cell, sample] : cells) {
    const PromptInfo& p = *prompts.at(cell.first);
    if (!(p.*field).empty()) parts[{p.task, p.*field}][cell] = sample;
  }
  return parts;
}

}  // namespace

std::vector<PartSpeed> speed_by_part(const RunData& data, Estimator estimator) {
  std::map<int64_t, const PromptInfo*> prompts;
  for (const PromptInfo& p : data.prompts) prompts[p.id] = &p;
  const PromptDesigns designs(data.prompts, Scope::kSameKind);
  std::map<int64_t, ArmCells> cells;
  for (const ArmInfo& arm : data.arms) cells[arm.id] = cells_of(data, arm.id);
  std::vector<PartSpeed> list;
  for (const auto& [axis, field] : {std::pair("category", &PromptInfo::category),
                                    std::pair("language", &PromptInfo::language)}) {
    std::map<std::string, std::set<std::string>> parts;  // by data set
    for (const PromptInfo& p : data.prompts)
      if (!(p.*field).empty()) parts[p.task].insert(p.*field);
    std::erase_if(parts, [](const auto& part) { return part.second.size() < 2; });
    if (parts.empty()) continue;
    for (const ArmInfo& arm : data.arms) {
      const ArmInfo* reference = data.reference(arm);
      if (!arm.drafts() || reference == nullptr) continue;
      const auto own = cells_by_part(cells.at(arm.id), prompts, field);
      const auto base = cells_by_part(cells.at(reference->id), prompts, field);
      for (const auto& [task, names] : parts)
        for (const std::string& name : names) {
          const auto mine = own.find({task, name}), theirs = base.find({task, name});
          if (mine == own.end() || theirs == base.end()) continue;
          const Pairing pairing =
              pair_with_reference(mine->second, theirs->second, [](int64_t) { return true; });
          const PromptPairs& prompts_of = headline_pairs(pairing, estimator);
          const std::vector<PromptPair> pairs = values_of(prompts_of);
          const auto estimate = reports::speedup(pairs, estimator, designs.of(ids_of(prompts_of)));
          if (!estimate) continue;
          PartSpeed part{arm.label,
                         task,
                         axis,
                         name,
                         static_cast<int64_t>(pairs.size()),
                         estimate->value,
                         estimate->interval,
                         estimate->n_eff,
                         std::nullopt};
          if (pairing.method.steps > 0) part.tau = pairing.method.emitted / pairing.method.steps;
          list.push_back(std::move(part));
        }
    }
  }
  return list;
}

}  // namespace evalrun::reports
