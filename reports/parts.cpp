#include "reports/parts.h"

#include <map>
#include <set>

#include "reports/pairing.h"

namespace evalrun::reports {

std::vector<PartSpeed> speed_by_part(const RunData& data, Estimator estimator) {
  std::map<int64_t, const PromptInfo*> prompts;
  for (const PromptInfo& p : data.prompts) prompts[p.id] = &p;
  std::vector<PartSpeed> list;
  for (const auto& [axis, field] : {std::pair("category", &PromptInfo::category),
                                    std::pair("language", &PromptInfo::language)}) {
    std::map<std::string, std::set<std::string>> parts;  // by data set
    for (const PromptInfo& p : data.prompts)
      if (!(p.*field).empty()) parts[p.task].insert(p.*field);
    for (const auto& [task, names] : parts) {
      if (names.size() < 2) continue;
      for (const ArmInfo& arm : data.arms) {
        const ArmInfo* reference = data.reference(arm);
        if (!arm.drafts() || reference == nullptr) continue;
        const auto own = cells_of(data, arm.id), base = cells_of(data, reference->id);
        for (const std::string& name : names) {
          const Pairing pairing = pair_with_reference(own, base, [&](int64_t prompt) {
            return prompts.at(prompt)->task == task && prompts.at(prompt)->*field == name;
          });
          const std::vector<PromptPair> pairs = values_of(pairing.prompts);
          const auto estimate = reports::speedup(pairs, estimator);
          if (!estimate) continue;
          PartSpeed part{arm.label,
                         task,
                         axis,
                         name,
                         static_cast<int64_t>(pairs.size()),
                         estimate->value,
                         estimate->interval,
                         std::nullopt};
          if (pairing.method.steps > 0) part.tau = pairing.method.emitted / pairing.method.steps;
          list.push_back(std::move(part));
        }
      }
    }
  }
  return list;
}

}  // namespace evalrun::reports
