// Which prompts of an estimate belong together, and what is fixed: what an interval says depends on
// what would be drawn anew.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reports/data/id_numbers.h"
#include "reports/data/run_data.h"

namespace evalrun::reports {

// What an interval claims. Prompts of one group (PromptInfo::group) count as one in the first two.
// The kind of a prompt is its data set and category.
//   kSameKind  where the value of new prompts of the same kinds would lie, kinds in the same shares
//   kNewKinds  where that of new kinds would lie; of new groups, where a row has no kinds
//   kFixedSet  where that of these prompts would lie when measured again
// All of them are for the machines that measured: these are not drawn anew. In kSameKind the kinds
// of each machine are strata, if machines have two prompts of a kind or more on average; with
// fewer, kinds alone are strata, and what machines differ by widens the interval.
enum class Scope { kSameKind, kNewKinds, kFixedSet };
const char* to_string(Scope s);  // "same-kind", "new-kinds", "fixed-set"
// As on the command line; "population" is an older name of the same kind.
Scope scope_named(std::string_view name);
std::string scope_text(Scope s);  // "new prompts of the same kind (same-kind)"

// 1 / sum of the squares of the shares: as many units of equal weight say as much. 0 for none.
double effective_count(std::span<const double> weights);

// The strata of a design as its jackknifes need them. Strata have two units at least: single ones
// are pooled, and one that is left goes to the smallest stratum. Numbers are 0 .. sizes.size() - 1,
// in the order of first appearance.
struct Strata {
  std::vector<int> of;     // by unit
  std::vector<int> sizes;  // units, by stratum
  // By stratum of n units: n, n - 1 and sqrt((n - 1) / n).
  std::vector<double> n, others, scale;
  // effective_count() of the units' numbers of prompts.
  double n_eff = 0;
  bool one_each = false;  // unit i is prompt i
  // Degrees of freedom of units that are worth so many of equal weight: one less for one stratum;
  // n less the number of strata where all n have equal weight.
  double degrees(double worth) const;
};

// The units that are independent of each other, and the fixed strata that they are of. Empty: every
// prompt is a unit, of one stratum.
struct Design {
  std::vector<int> unit;     // by prompt
  std::vector<int> stratum;  // by unit
  // Of the two above where they were made by PromptDesigns; else null, and strata_of() makes it.
  std::shared_ptr<const Strata> strata = nullptr;
  bool empty() const { return unit.empty(); }
  size_t units() const { return stratum.size(); }
  // Of a part of the prompts, by their places: in their order, each once. It is this design where
  // all take part, else it is made in `room`.
  const Design& of(std::span<const size_t> prompts, Design& room) const;
};
// Of so many prompts.
std::shared_ptr<const Strata> strata_of(const Design& design, size_t prompts);

// Designs of prompts of a run, by their ids. It remembers the latest ones: not for several threads.
class PromptDesigns {
 public:
  PromptDesigns() = default;  // every prompt is a unit
  // `prompts`: all of the run, in its order.
  PromptDesigns(const std::vector<PromptInfo>& prompts, Scope scope);
  // Until the next call. Of an arm of a batch above 1: prompts that were decoded together share
  // their times, so they are one unit, in every scope, and so are groups that meet in one. They are
  // prompts i with the same i / batch, rounded down, of the run's order within a data set and, of
  // several machines, on one. New
  // kinds are units as ever. Figures of two arms of different batches: the least common multiple.
  const Design& of(std::span<const int64_t> prompt_ids, int64_t batch = 1) const;

 private:
  struct Place {
    int kind = 0, group = 0;
    bool named = false;  // the kind has a category
    int machine = 0;
    int task = 0;         // whole data sets, of which parts may be the run's
    int64_t in_task = 0;  // among the machine's prompts
  };
  struct Known {
    std::vector<int64_t> ids;
    int64_t batch = 1;
    Design design;
  };
  Design make(std::span<const int64_t> prompt_ids, int64_t batch) const;
  // Whether kinds are strata machine by machine.
  bool strata_by_machine(const std::vector<Place>& places) const;
  std::vector<int> units_by_group(const std::vector<Place>& places, int64_t batch) const;
  Scope scope_ = Scope::kFixedSet;
  PromptNumbers numbers_;
  std::vector<Place> places_;  // by number
  int kinds_ = 0, groups_ = 0, machines_ = 1;
  mutable std::list<Known> known_;  // the latest first
};

}  // namespace evalrun::reports
