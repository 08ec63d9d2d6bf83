// Paired comparison of two runs: per prompt, did the speedup change, and which of its causes moved?
// Machine speed cancels in a speedup. That also hides what a faster baseline arm does to it, so
// tokens/s of both arms stand beside it (docs/measurement.md).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "reports/document/document.h"
#include "results/store.h"

namespace evalrun::reports {

struct CompareOptions {
  double confidence = 0.95;  // of the two-sided interval
  double min_effect = 0.03;  // changes smaller than this do not matter
  Faults faults = Faults::kLeaveOut;
  // Over all rows of the comparison. The default explores: a row that is called changed is one to
  // look at. Looking at a false one now and then costs less than missing a true one. In the gate
  // one false call stops a build, so the gate uses Holm.
  base::Adjustment adjustment = base::Adjustment::kBenjaminiHochberg;
  Scope scope = Scope::kFixedSet;
};

// kNoDifference: the interval lies within +-min_effect. Else kFaster, kSlower: the adjusted p of
// "no change" is below 1 - confidence (without an adjustment: the interval leaves out 1).
// kInconclusive: neither.
enum class Change { kFaster, kSlower, kNoDifference, kInconclusive };
const char* to_string(Change c);

// What moved, in tokens/s or in text; several may apply.
enum class Cause {
  kMethodSlower,
  kMethodFaster,
  kArSlower,
  kArFaster,
  kBothSlower,
  kBothFaster,
  kTextChanged
};
const char* to_string(Cause c);

// What made a speedup change, or left it as it was while both sides moved. `method` and `ar` are
// the logs of each side's change in tokens/s, `margin` (> 0) the smallest that counts. Where the
// two moved apart, the side that moved further is named: drift between two sessions falls on both,
// so it is the other one that stood still. Where both moved, the one that moved less comes second.
// Where they moved together, that is said.
std::vector<Cause> speed_causes(double method, double ar, double margin);
struct Pairing;
// Of one arm in two runs, from the fastest repeats of both.
std::vector<Cause> causes_of(const Pairing& a, const Pairing& b, bool text_changed, double margin);

// One side of a comparison, totals over the paired prompts.
struct ArmSide {
  double tok_s = 0, base_tok_s = 0, speedup = 0, tau = 0;
  double t_ratio = 0, draft_share = 0, overhead = 0;
};

struct ArmComparison {
  std::string method;     // arm label
  std::string dataset;    // task name, or "all"
  int n_prompts = 0;      // paired, with a per-prompt speedup on both sides
  double n_eff = 0;       // units of equal weight that they are worth (SessionChange)
  bool one_unit = false;  // several prompts, and all of one group, kind or batch: no interval
  int64_t batch = 1;      // of the arm
  // exp(mean d_i), d_i = ln s_i(B) - ln s_i(A): the factor by which the typical speedup changed.
  // Of several sessions, the means of their ln s_i.
  double ratio = 1;
  std::optional<base::Interval> interval;  // of `ratio`, see session_change(); absent for n < 2
  std::optional<double> p_value;           // two-sided, of "no change"
  std::optional<double> p_adjusted;        // absent for Adjustment::kNone
  // Between sessions of a side, of the mean ln s_i; absent where both sides have one.
  std::optional<double> session_sd;
  Change change = Change::kInconclusive;
  double identical_share = 0;  // same tokens in A (its first session) and B (all of them)
  ArmSide a, b;
  std::vector<Cause> causes;
};

struct Comparison {
  std::vector<RunInfo> a, b;  // the sessions of each side, one or more
  double min_effect = 0.03, confidence = 0.95;
  base::Adjustment adjustment = base::Adjustment::kBenjaminiHochberg;
  Scope scope = Scope::kFixedSet;
  std::vector<ArmComparison> arms;
  std::vector<std::string> warnings;  // settings that differ, arms and prompts without a partner
};

struct StoredRun {
  const results::ResultStore* store = nullptr;
  int64_t run = 0;
};

// Each side is one run or several sessions of the same thing (require_sessions_of_one_thing). Arms
// are matched by label, prompts by key. The stores may be the same object. Throws data_error when
// nothing can be paired, and Error(kNoBaseline) where an arm was sampled by another sampler in B.
Comparison compare_runs(std::span<const StoredRun> a, std::span<const StoredRun> b,
                        const CompareOptions& options = {});
Comparison compare_runs(const results::ResultStore& store_a, int64_t run_a,
                        const results::ResultStore& store_b, int64_t run_b,
                        const CompareOptions& options = {});

Document document(const Comparison& c);  // verdicts stand out; CSV has the arms of the JSON
std::string to_json(const Comparison& c);

}  // namespace evalrun::reports
