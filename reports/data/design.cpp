#include "reports/data/design.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "reports/data/jackknife.h"

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

const Design& Design::of(std::span<const size_t> prompts, Design& room) const {
  // Places are in order, so these are all.
  if (empty() || prompts.size() == unit.size()) return *this;
  room = {};
  room.unit.reserve(prompts.size());
  constexpr int kNone = -1;
  std::vector<int> numbers(stratum.size(), kNone);
  for (const size_t p : prompts) {
    const auto whole = static_cast<size_t>(unit[p]);
    if (numbers[whole] == kNone) {
      numbers[whole] = static_cast<int>(room.stratum.size());
      room.stratum.push_back(stratum[whole]);
    }
    room.unit.push_back(numbers[whole]);
  }
  return room;
}

namespace {

// Strata::of and sizes. The design's numbers of strata are small.
void number_strata(const std::vector<int>& stratum, Strata& s) {
  std::vector<int> sizes;
  for (const int of : stratum) {
    EVALRUN_CHECK(of >= 0, "stratum {}", of);
    if (static_cast<size_t>(of) >= sizes.size()) sizes.resize(static_cast<size_t>(of) + 1);
    ++sizes[static_cast<size_t>(of)];
  }
  // Single units: one stratum, or the smallest other one where there is just one of them.
  constexpr int kSingle = -1;
  int singles = 0, smallest = kSingle;
  for (size_t i = 0; i < sizes.size(); ++i) {
    singles += sizes[i] == 1;
    if (sizes[i] > 1 && (smallest == kSingle || sizes[i] < sizes[static_cast<size_t>(smallest)]))
      smallest = static_cast<int>(i);
  }
  const int pooled = singles == 1 ? smallest : kSingle;
  constexpr int kNone = -1;
  std::vector<int> numbers(sizes.size() + 1, kNone);  // of strata, the single ones' last
  s.of.reserve(stratum.size());
  for (const int own : stratum) {
    const int of = sizes[static_cast<size_t>(own)] == 1 ? pooled : own;
    int& number = of == kSingle ? numbers.back() : numbers[static_cast<size_t>(of)];
    if (number == kNone) {
      number = static_cast<int>(s.sizes.size());
      s.sizes.push_back(0);
    }
    s.of.push_back(number);
    ++s.sizes[static_cast<size_t>(number)];
  }
}

// Whether unit i is prompt i, for all of them.
bool numbers_prompts(const std::vector<int>& unit) {
  for (size_t i = 0; i < unit.size(); ++i)
    if (unit[i] != static_cast<int>(i)) return false;
  return true;
}

}  // namespace

double Strata::degrees(double worth) const {
  const auto units = static_cast<double>(of.size()), strata = static_cast<double>(sizes.size());
  return units > 1 ? (worth - 1) * (units - strata) / (units - 1) : 0;
}

std::shared_ptr<const Strata> strata_of(const Design& design, size_t prompts) {
  EVALRUN_CHECK(design.empty() || design.unit.size() == prompts, "a design of {} prompts for {}",
                design.unit.size(), prompts);
  if (design.strata != nullptr) return design.strata;
  const auto s = std::make_shared<Strata>();
  s->one_each = design.empty() ||
                (design.units() == design.unit.size() && numbers_prompts(design.unit));
  if (design.empty()) {
    s->of.assign(prompts, 0);
    s->sizes = {static_cast<int>(prompts)};
  } else {
    number_strata(design.stratum, *s);
  }
  for (const int size : s->sizes) {
    const double n = size;
    s->n.push_back(n);
    s->others.push_back(n - 1);
    s->scale.push_back(std::sqrt((n - 1) / n));
  }
  std::vector<double> members(s->of.size(), s->one_each ? 1 : 0);
  if (!s->one_each)
    for (const int u : design.unit) members[static_cast<size_t>(u)] += 1;
  s->n_eff = effective_count(members);
  return s;
}

PromptDesigns::PromptDesigns(const std::vector<PromptInfo>& prompts, Scope scope) : scope_(scope) {
  std::map<std::pair<std::string, std::string>, int> kinds, groups;
  for (const PromptInfo& p : prompts)
    places_[p.id] = {.kind = number_of(kinds, {p.task, p.category}),
                     .group = number_of(groups, group_of(p)),
                     .named = !p.category.empty()};
}

const Design& PromptDesigns::of(std::span<const int64_t> prompt_ids) const {
  static const Design kAlone = {};
  if (scope_ == Scope::kFixedSet) return kAlone;
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
  if (strata.size() < 2 && units.size() == prompt_ids.size()) return {};
  d.strata = strata_of(d, prompt_ids.size());
  return d;
}

}  // namespace evalrun::reports
