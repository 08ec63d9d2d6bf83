// The list of data sets, and what all of them share: lookup, data root, choosing a part.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "datasets/sets.h"
#include "datasets/spec.h"

namespace evalrun::datasets {

const base::Registry<DatasetEntry>& dataset_registry() {
  static const base::Registry<DatasetEntry> kRegistry = [] {
    base::Registry<DatasetEntry> registry("data set");
    const auto add = [&](DatasetEntry entry) {
      const std::string name = entry.info.name;
      registry.add(name, std::move(entry));
    };
    for (DatasetEntry& entry : samples()) add(std::move(entry));
    add(mt_bench());
    add(gsm8k());
    add(gsm_100());
    add(humaneval());
    add(humaneval_x());
    add(mbpp());
    add(mbpp_100());
    add(xsum());
    add(spec_bench());
    add(cip());
    add(cip_standin());
    add(dolly());
    return registry;
  }();
  return kRegistry;
}

bool DatasetSpec::wants(std::string_view part) const {
  return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
}

LoadedDataset load_dataset(const std::string& spec, const std::string& data_root) {
  const std::string checked = checked_dataset_spec(spec);
  if (checked.starts_with(kJsonlPrefix)) return load_jsonl(checked.substr(kJsonlPrefix.size()));
  const DatasetEntry* entry = nullptr;
  const DatasetSpec parsed = parse_dataset_spec(checked, &entry);
  return entry->load(data_root, parsed);
}

std::string resolve_data_root(const std::string& option) {
  if (!option.empty()) return option;
  const char* environment = std::getenv("EVALRUN_DATA");
  return environment == nullptr ? "" : environment;
}

std::vector<Prompt> limit_prompts(std::vector<Prompt> prompts, double limit) {
  if (!std::isfinite(limit) || (limit > 1 && limit != std::floor(limit)))
    throw base::usage_error(fmt::format("limit {} makes no sense", limit),
                            "a whole number of prompts, or a fraction between 0 and 1");
  const double total = static_cast<double>(prompts.size());
  if (limit <= 0 || limit >= total) return prompts;
  const size_t wanted = limit >= 1 ? static_cast<size_t>(limit)
                                   : static_cast<size_t>(std::max(1.0, std::round(limit * total)));

  // Categories (or languages, where a set has no categories) take turns until enough are chosen, so
  // that none is more than one ahead of another that still has prompts.
  std::vector<std::vector<size_t>> by_category;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto [it, is_new] =
        index.try_emplace(prompts[i].category.empty() ? prompts[i].language : prompts[i].category,
                          by_category.size());
    if (is_new) by_category.emplace_back();
    by_category[it->second].push_back(i);
  }
  std::vector<bool> chosen(prompts.size(), false);
  size_t n_chosen = 0;
  for (size_t round = 0; n_chosen < wanted; ++round)
    for (const std::vector<size_t>& members : by_category)
      if (round < members.size() && n_chosen < wanted) {
        chosen[members[round]] = true;
        ++n_chosen;
      }

  std::vector<Prompt> part;
  part.reserve(wanted);
  for (size_t i = 0; i < prompts.size(); ++i)
    if (chosen[i]) part.push_back(std::move(prompts[i]));
  return part;
}

}  // namespace evalrun::datasets
