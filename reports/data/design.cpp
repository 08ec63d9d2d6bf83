#include "reports/data/design.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::reports {

namespace {

// Numbers 0, 1, ... in the order of first appearance.
template <typename Key>
int number_of(std::map<Key, int>& known, const Key& key) {
  return known.try_emplace(key, static_cast<int>(known.size())).first->second;
}

// Data set and name; the data set is left out of groups of all sets (datasets::Prompt::group).
std::pair<std::string, std::string> group_of(const PromptInfo& p) {
  if (p.group.empty()) return {p.task, "\n" + p.key};
  return {p.group.starts_with('/') ? "" : p.task, "=" + p.group};
}

}  // namespace

const char* to_string(Scope s) {
  switch (s) {
    case Scope::kSameKind:
      return "same-kind";
    case Scope::kNewKinds:
      return "new-kinds";
    case Scope::kFixedSet:
      return "fixed-set";
  }
  EVALRUN_CHECK(false, "unknown scope {}", static_cast<int>(s));
}

Scope scope_named(std::string_view name) {
  for (const Scope s : {Scope::kSameKind, Scope::kNewKinds, Scope::kFixedSet})
    if (name == to_string(s)) return s;
  EVALRUN_CHECK(name == "population", "scope '{}'", name);
  return Scope::kSameKind;
}

std::string scope_text(Scope s) {
  const char* what = s == Scope::kSameKind   ? "new prompts of the same kind"
                     : s == Scope::kNewKinds ? "new kinds of prompts"
                                             : "these prompts measured again";
  return fmt::format("{} ({})", what, to_string(s));
}

Design Design::of(std::span<const size_t> prompts) const {
  Design part;
  if (empty()) return part;
  if (prompts.size() == unit.size()) return *this;  // places are in order, so these are all
  std::map<int, int> units;
  for (const size_t p : prompts) {
    part.unit.push_back(number_of(units, unit[p]));
    if (units.size() > part.stratum.size())
      part.stratum.push_back(stratum[static_cast<size_t>(unit[p])]);
  }
  return part;
}

PromptDesigns::PromptDesigns(const std::vector<PromptInfo>& prompts, Scope scope) : scope_(scope) {
  std::map<std::pair<std::string, std::string>, int> kinds, groups;
  for (const PromptInfo& p : prompts)
    places_[p.id] = {.kind = number_of(kinds, {p.task, p.category}),
                     .group = number_of(groups, group_of(p)),
                     .named = !p.category.empty()};
}

Design PromptDesigns::of(std::span<const int64_t> prompt_ids) const {
  if (scope_ == Scope::kFixedSet) return {};
  // Arms mostly have the same prompts, and a row asks for them several times.
  if (!std::equal(prompt_ids.begin(), prompt_ids.end(), last_ids_.begin(), last_ids_.end())) {
    last_ = make(prompt_ids);
    last_ids_.assign(prompt_ids.begin(), prompt_ids.end());
  }
  return last_;
}

Design PromptDesigns::make(std::span<const int64_t> prompt_ids) const {
  std::set<int> kinds_seen;
  bool named = false;
  for (const int64_t id : prompt_ids) {
    const Place& place = places_.at(id);
    kinds_seen.insert(place.kind);
    named = named || place.named;
  }
  const bool by_kind = scope_ == Scope::kNewKinds && (named || kinds_seen.size() > 1);
  Design d;
  std::map<int, int> units;
  std::vector<std::set<int>> kinds;  // by unit
  for (const int64_t id : prompt_ids) {
    const Place& place = places_.at(id);
    const int unit = number_of(units, by_kind ? place.kind : place.group);
    if (kinds.size() < units.size()) kinds.emplace_back();
    if (scope_ == Scope::kSameKind) kinds[static_cast<size_t>(unit)].insert(place.kind);
    d.unit.push_back(unit);
  }
  // A group of several kinds is of a stratum of its own making.
  std::map<std::set<int>, int> strata;
  for (const std::set<int>& of : kinds) d.stratum.push_back(number_of(strata, of));
  return strata.size() < 2 && units.size() == prompt_ids.size() ? Design{} : d;
}

}  // namespace evalrun::reports
