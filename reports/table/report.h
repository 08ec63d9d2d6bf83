// The comparison table: one row per data set and arm, from one run of a store. docs/measurement.md
// defines every column; a row's numbers equal the documented views.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "reports/document/document.h"
#include "reports/table/conditions.h"
#include "reports/table/gpu_use.h"
#include "reports/table/parts.h"
#include "reports/table/run_counts.h"
#include "results/store.h"

namespace evalrun::reports {

// How the intervals of the "speedup" column and of tau are made: Student's t (estimators.h), or
// resampled prompts (bootstrap.h) with the run's key as seed. Both are for new prompts of the same
// kind (population).
enum class IntervalKind { kStudent, kBootstrap };

struct ReportOptions {
  Estimator estimator = Estimator::kSum;  // of the "speedup" column
  bool why = true;     // the columns that explain the speedup, in Markdown and text
  bool parts = false;  // Report::parts, which only the page shows
  // Which pass@k to show, 1 to 100; empty = 1, 10 and 100 where there are samples enough. Asked for
  // without samples enough: usage_error.
  std::vector<int> pass_k = {};
  // Label of the arm that quality is compared with; "" = the baseline. Unknown: usage_error.
  std::string control = {};
  // Leaves answers that run in a loop out of the speed figures of both arms. Otherwise they are
  // kept; they are counted in any case.
  bool exclude_degenerate = false;
  IntervalKind interval = IntervalKind::kStudent;
};

struct Quality {
  std::string version;
  double value = 0;
  // 95 %, for new prompts of the same kind: Wilson's for scores of 0 and 1, else Student's t over
  // the prompts' means. Absent for a single prompt.
  std::optional<base::Interval> interval;
  int64_t n = 0;             // scored
  int64_t unscored = 0;      // evaluator could not tell
  int64_t suspicious = 0;    // scored, by means that deserve a look
  int64_t unsandboxed = 0;   // programs that ran unprotected (--allow-unsafe)
  std::optional<double> sd;  // over samples, when there are several
  // Against the control arm (Report::control): answers scored in both, how many of them scored
  // otherwise there, higher here, lower here; the mean difference of the prompts that both have,
  // and its 95 % interval for new prompts (Student's t over the prompts' differences, so answers to
  // one prompt count as one; absent where all are equal). Absent for the control itself, and where
  // the machine kept some of its answers from being judged.
  int64_t compared = 0, differing = 0, better = 0, worse = 0;
  std::optional<double> difference;
  std::optional<base::Interval> difference_interval;
  std::map<std::string, int64_t> statuses;  // of the answers: "ok", "passed", "timeout", ...
  std::map<int, double> pass_at;            // k -> pass@k, where the evaluator is one; not pooled
};

// Acceptance at one depth (1 = first draft token), pooled over steps.
struct DepthAcceptance {
  int64_t tested = 0, accepted = 0;
  double conditional = 0;  // accepted / tested
  double joint = 0;        // accepted / all steps
};

struct ReportRow {
  ArmInfo arm;
  std::string dataset;  // task name, or "all" for the pooled row when there are several
  int64_t n_prompts = 0, samples = 0, repeats = 0;
  int64_t generations = 0, failed = 0;
  int64_t unpaired = 0;  // (prompt, sample) cells left out because the reference arm lacks them

  // Label of the arm that speedup, what explains it and same tokens are against
  // (RunData::reference); "" without one, and where the arm is its own.
  std::string reference;
  std::optional<double> speedup;  // 1 for an arm that is its own reference; absent without one
  std::optional<base::Interval> speedup_interval;  // absent where speedup is 1 by definition, n < 2
  std::optional<double> speedup_geo;
  std::optional<base::Interval> speedup_geo_interval;  // always Student's t
  std::optional<double> sample_mean,
      sample_sd;  // of the speedup over samples, when there are several
  std::optional<double> tok_s;
  double steps = 0, drafted = 0, drafted_depth = 0, accepted = 0, emitted = 0, target_forwards = 0;
  double rows = 0, undrafted = 0;
  std::optional<double> tau, accepted_per_step, de, rows_per_step;
  std::optional<base::Interval> tau_interval;  // as the speedup's; absent for plain decoding
  // Share of steps in which nothing was drafted; absent for plain decoding, which never drafts.
  std::optional<double> no_draft;
  std::optional<double> alpha_draft, alpha_draft_depth, alpha_share;
  std::vector<DepthAcceptance> alpha_by_depth;
  std::vector<NodeAcceptance> acceptance_by_node;  // by depth, then rank
  std::optional<double> identical_share;
  int64_t identical = 0, compared = 0;
  std::optional<double> t_ratio, draft_share, overhead, residual;
  std::map<std::string, Quality> quality;

  // Cells (prompt, sample) of the arm and its reference in which an answer of either runs in a
  // loop, out of those both have; the speedup over the others, where that is another figure.
  int64_t degenerate = 0, cells = 0;
  std::optional<double> speedup_without_degenerate;
  std::optional<base::Interval> speedup_without_degenerate_interval;
  // Of an arm that was led along its reference's text (view v_divergence): places at which it had a
  // say, at how many it would have gone on otherwise, of these near ties, and the largest gap.
  std::optional<int64_t> asked;
  int64_t differing = 0, near_ties = 0;
  std::optional<double> largest_gap;
  // Bytes per second of the weights that the target's forwards read, over what this machine's
  // memory gave before the run; absent where that was not measured.
  std::optional<double> bandwidth_share;
  std::optional<GpuUse> gpu;
};

struct Report {
  RunInfo run;
  Estimator estimator = Estimator::kSum;
  IntervalKind interval = IntervalKind::kStudent;
  bool why = true;
  std::vector<int> pass_k = {1, 10, 100};
  std::string control;  // label of the arm that quality is compared with; "" without a baseline
  std::vector<PartSpeed> parts;  // speed by category and language
  std::vector<ReportRow> rows;   // by data set ("all" last), arms in order, lossy ones behind
  bool exclude_degenerate = false;
  Conditions conditions;  // of the machine while the run was measured
  GpuDisturbances gpu_disturbances;
  int64_t hidden_faults = 0;  // generations with a planted fault, left out
};

// Throws data_error when the run does not exist or has no finished generation.
Report build_report(const results::ResultStore& store, int64_t run_id,
                    const ReportOptions& options = {});

// The run `name` means (see ResultStore::find_run; "" = newest), or a usage_error that lists some.
int64_t require_run(const results::ResultStore& store, const std::string& name);

// The best speedup of a data set and what fails stand out; LaTeX has a table per data set.
Document document(const Report& report);
std::string to_json(const Report& report);  // array of rows, keys in docs/measurement.md
// Of CSV: a column per key of the JSON; `quality` becomes quality_<evaluator> and
// quality_<evaluator>_n, and acceptance_by_node, a table of its own, is left out.
Table report_records(const Report& report);
struct Claimed;
// One page that needs nothing beside it: tables, charts, one generation of every arm (from `store`,
// the one the report was built from), published figures if there are any, definitions.
std::string to_html(const Report& report, const results::ResultStore& store,
                    const Claimed* claimed = nullptr);

}  // namespace evalrun::reports
