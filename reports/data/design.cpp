#include "reports/data/design.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::reports {

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

double effective_count(std::span<const double> weights) {
  double sum = 0, squares = 0;
  for (const double w : weights) sum += w, squares += w * w;
  return squares > 0 ? sum * sum / squares : 0;
}

double Strata::degrees(double worth) const {
  const auto units = static_cast<double>(of.size()), strata = static_cast<double>(sizes.size());
  return units > 1 ? (worth - 1) * (units - strata) / (units - 1) : 0;
}

std::shared_ptr<const Strata> strata_of(const Design& design, size_t prompts) {
  EVALRUN_CHECK(design.empty() || design.unit.size() == prompts, "a design of {} prompts for {}",
                design.unit.size(), prompts);
  if (design.strata != nullptr) return design.strata;
  const auto s = std::make_shared<Strata>();
  s->one_each =
      design.empty() || (design.units() == design.unit.size() && numbers_prompts(design.unit));
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
  if (s->one_each) {
    s->n_eff = static_cast<double>(prompts);
    return s;
  }
  std::vector<double> members(s->of.size());
  for (const int u : design.unit) members[static_cast<size_t>(u)] += 1;
  s->n_eff = effective_count(members);
  return s;
}

namespace {

// Data set and name.
using NamePair = std::pair<std::string_view, std::string_view>;

struct NamePairHash {
  size_t operator()(const NamePair& names) const {
    const std::hash<std::string_view> hash{};
    return 31 * hash(names.first) + hash(names.second);
  }
};

using NamePairNumbers = std::unordered_map<NamePair, int, NamePairHash>;

// The number of `names`, which is `next` where they are new.
int number_of(NamePairNumbers& known, const NamePair& names, int& next) {
  const auto [at, added] = known.try_emplace(names, next);
  if (added) ++next;
  return at->second;
}

}  // namespace

PromptDesigns::PromptDesigns(const std::vector<PromptInfo>& prompts, Scope scope)
    : scope_(scope), numbers_(prompts), places_(numbers_.size()) {
  NamePairNumbers kinds, alone, together, tasks;
  alone.reserve(prompts.size());
  int n_tasks = 0;
  for (const PromptInfo& p : prompts) machines_ = std::max(machines_, p.machine + 1);
  std::map<std::pair<int, int>, int64_t> of_task;  // by data set and machine: prompts so far
  for (const PromptInfo& p : prompts) {
    Place& place = places_[numbers_.of(p.id)];
    // Parts of a data set (results::regrouped) were decoded in its order.
    const std::string_view whole = std::string_view(p.task).substr(0, p.task.find(" / "));
    place.machine = p.machine;
    place.task = number_of(tasks, {whole, {}}, n_tasks);
    place.in_task = of_task[{place.task, place.machine}]++;
    place.kind = number_of(kinds, {p.task, p.category}, kinds_);
    place.named = !p.category.empty();
    // The data set is left out of groups of all sets (datasets::Prompt::group).
    std::string_view task = p.task;
    if (p.group.starts_with('/')) task = {};
    place.group = p.group.empty() ? number_of(alone, {task, p.key}, groups_)
                                  : number_of(together, {task, p.group}, groups_);
  }
}

const Design& PromptDesigns::of(std::span<const int64_t> prompt_ids, int64_t batch) const {
  EVALRUN_CHECK(batch >= 1, "a batch of {}", batch);
  static const Design kAlone = {};
  if (places_.empty() || (scope_ == Scope::kFixedSet && batch == 1)) return kAlone;
  // Arms mostly have the same prompts, and a row asks for them several times; parts of data sets
  // come again with every arm.
  constexpr size_t kRemembered = 16;
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& k) {
    return k.batch == batch &&
           std::equal(prompt_ids.begin(), prompt_ids.end(), k.ids.begin(), k.ids.end());
  });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    return known_.front().design;
  }
  Design made = make(prompt_ids, batch);
  if (known_.size() == kRemembered) known_.pop_back();
  Known& latest = known_.emplace_front();
  latest.ids.assign(prompt_ids.begin(), prompt_ids.end());
  latest.batch = batch;
  latest.design = std::move(made);
  return latest.design;
}

namespace {

// The kinds of each unit's prompts; mostly it is one.
class KindsOfUnits {
 public:
  size_t units() const { return only_.size(); }
  void add_unit(int kind) { only_.push_back(kind); }
  void add(int unit, int kind) {
    int& only = only_[static_cast<size_t>(unit)];
    if (only == kind) return;
    std::set<int>& all = several_[unit];
    if (only != kSeveral) all.insert(only);
    all.insert(kind);
    only = kSeveral;
  }
  // A stratum for each kind, in the order of first appearance. A group of several kinds is of a
  // stratum of its own making.
  std::vector<int> strata(int kinds, int& n_strata) const {
    constexpr int kNone = -1;
    std::vector<int> of_units, of_kind(static_cast<size_t>(kinds), kNone);
    std::map<std::set<int>, int> of_kinds;
    of_units.reserve(only_.size());
    for (size_t u = 0; u < only_.size(); ++u) {
      int& stratum =
          only_[u] == kSeveral
              ? of_kinds.try_emplace(several_.at(static_cast<int>(u)), kNone).first->second
              : of_kind[static_cast<size_t>(only_[u])];
      if (stratum == kNone) stratum = n_strata++;
      of_units.push_back(stratum);
    }
    return of_units;
  }

 private:
  static constexpr int kSeveral = -1;
  std::vector<int> only_;  // by unit
  std::map<int, std::set<int>> several_;
};

}  // namespace

// By place: a number for what belongs together by its group, or was decoded together. Of the fixed
// set groups say nothing: nothing is drawn anew but the measurement.
std::vector<int> PromptDesigns::units_by_group(const std::vector<Place>& places,
                                               int64_t batch) const {
  std::vector<int> of(places.size());
  for (size_t i = 0; i < places.size(); ++i) of[i] = places[i].group;
  if (batch == 1) return of;
  std::iota(of.begin(), of.end(), 0);  // each points to one that it belongs to, or to itself
  const auto first = [&](int i) {
    while (of[static_cast<size_t>(i)] != i) i = of[static_cast<size_t>(i)];
    return i;
  };
  std::map<std::tuple<int, int, int64_t>, int> batches;
  std::map<int, int> groups;
  for (size_t i = 0; i < places.size(); ++i) {
    const int own = static_cast<int>(i);
    const int beside =
        batches.try_emplace({places[i].task, places[i].machine, places[i].in_task / batch}, own)
            .first->second;
    of[static_cast<size_t>(first(own))] = first(beside);
    if (scope_ == Scope::kFixedSet) continue;
    const int related = groups.try_emplace(places[i].group, own).first->second;
    of[static_cast<size_t>(first(own))] = first(related);
  }
  for (size_t i = 0; i < of.size(); ++i) of[i] = first(static_cast<int>(i));
  return of;
}

bool PromptDesigns::strata_by_machine(const std::vector<Place>& places) const {
  if (machines_ == 1 || scope_ != Scope::kSameKind) return false;
  std::set<std::pair<int, int>> strata;
  for (const Place& p : places) strata.insert({p.machine, p.kind});
  return 2 * strata.size() <= places.size();
}

Design PromptDesigns::make(std::span<const int64_t> prompt_ids, int64_t batch) const {
  std::vector<Place> places;
  places.reserve(prompt_ids.size());
  bool named = false, several_kinds = false;
  for (const int64_t id : prompt_ids) {
    places.push_back(places_[numbers_.of(id)]);
    named = named || places.back().named;
    several_kinds = several_kinds || places.back().kind != places.front().kind;
  }
  const bool by_kind = scope_ == Scope::kNewKinds && (named || several_kinds);
  Design d;
  d.unit.reserve(places.size());
  constexpr int kNone = -1;
  const std::vector<int> groups = by_kind ? std::vector<int>() : units_by_group(places, batch);
  const int most = batch > 1 ? static_cast<int>(places.size()) : groups_;
  std::vector<int> units(static_cast<size_t>(by_kind ? kinds_ : most), kNone);
  const bool by_machine = strata_by_machine(places);
  KindsOfUnits kinds;
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    int& unit = units[static_cast<size_t>(by_kind ? place.kind : groups[i])];
    // Where kinds are no strata, all units are of one.
    const int kind = scope_ != Scope::kSameKind ? 0
                     : by_machine               ? place.machine * kinds_ + place.kind
                                                : place.kind;
    if (unit == kNone) {
      unit = static_cast<int>(kinds.units());
      kinds.add_unit(kind);
    } else {
      kinds.add(unit, kind);
    }
    d.unit.push_back(unit);
  }
  int n_strata = 0;
  d.stratum = kinds.strata(kinds_ * machines_, n_strata);
  if (n_strata < 2 && kinds.units() == prompt_ids.size()) return {};
  d.strata = strata_of(d, prompt_ids.size());
  return d;
}

}  // namespace evalrun::reports
