// One row of a report: an arm on one data set, or on all of them. A group of figures each, with
// what they are made of.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/crossover.h"
#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "reports/figures/batch_measures.h"
#include "reports/figures/draft_lengths.h"
#include "reports/figures/energy_use.h"
#include "reports/figures/gpu_use.h"
#include "reports/figures/machine_figures.h"
#include "reports/figures/quality.h"
#include "reports/figures/run_counts.h"
#include "results/endpoint_queries.h"

namespace evalrun::reports {

// What was measured.
struct RowCounts {
  int64_t prompts = 0, samples = 0, repeats = 0;
  int64_t generations = 0, failed = 0;
  int64_t unpaired = 0;  // (prompt, sample) cells left out because the reference arm lacks them
};

// Against the row's reference arm, but for tok_s and first_token_ms.
struct SpeedFigures {
  std::optional<double> speedup;  // 1 for an arm that is its own reference; absent without one
  std::optional<base::Interval> interval;  // absent where speedup is 1 by definition, n < 2
  double n_eff = 0;                        // of the speedup (Estimate); 0 where it is no estimate
  std::optional<double> geo;
  std::optional<base::Interval> geo_interval;  // always Student's t
  // Where the speedup is a ratio of sums, and it and `geo` lie outside each other's interval: why.
  std::optional<EstimatorGap> gap;
  // Of the speedup over samples, when there are several.
  std::optional<double> sample_mean, sample_sd;
  std::optional<double> tok_s;
  // Of whole requests: all tokens over prefill, the drafter's prefill and decoding.
  std::optional<double> request;
  std::optional<base::Interval> request_interval;
  double request_n_eff = 0;  // as n_eff
  // How long an answer's first token takes, which is the target's prefill of the first turn: the
  // mean over answers, and the arm's over the reference's. Absent in a batch, where the time of a
  // prefill is a share and no wait: BatchFigures.
  std::optional<double> first_token_ms, first_token_ratio;
  std::optional<base::Interval> first_token_interval;  // of the ratio
  double first_token_n_eff = 0;
};

// Among the lossless arms of the baseline's model, on the prompts all of them decoded (best_set.h).
struct Ranking {
  bool fastest = false;         // the largest estimate
  bool may_be_fastest = false;  // not shown to be slower than any other; holds for `fastest`
  int n = 0;                    // prompts
  double n_eff = 0;             // as BestSet
  // Its speed over the fastest arm's, with a simultaneous interval: 1 and none for that arm.
  double against_fastest = 1;
  std::optional<base::Interval> against_fastest_interval = {};
  int lowest = 1, highest = 1;  // its rank, for all arms at once (ArmRank)
};

// Acceptance at one depth (1 = first draft token), pooled over steps. Tested are steps that
// accepted all before it and had a draft there. For trees that is known from the counts of nodes,
// but for one question an answer at most, after a stop token; in files without them the longest
// path counts.
struct DepthAcceptance {
  int64_t tested = 0, accepted = 0;
  double conditional = 0;  // accepted / tested
  double joint = 0;        // accepted / all steps
};

struct Acceptance {
  double steps = 0, drafted = 0, drafted_depth = 0, accepted = 0, emitted = 0, target_forwards = 0;
  double rows = 0, undrafted = 0;
  std::optional<double> tau, accepted_per_step, de, rows_per_step;
  std::optional<base::Interval> tau_interval;  // as the speedup's; absent for plain decoding
  double tau_n_eff = 0;                        // 0 where tau has no interval
  // Share of steps in which nothing was drafted; absent for plain decoding, which never drafts.
  std::optional<double> no_draft;
  std::optional<double> alpha_draft, alpha_draft_depth, alpha_share;
  std::vector<DepthAcceptance> by_depth;
  std::vector<NodeAcceptance> by_node;  // by depth, then rank
};

// What explains the speedup (Explanation, pairing.h).
struct SpeedReasons {
  std::optional<double> t_ratio, draft_share, overhead, residual;
  // Bytes per second of the weights that the target's forwards read, over what this machine's
  // memory gave before the run; absent where that was not measured, and in a batch, whose forwards
  // are shared.
  std::optional<double> bandwidth;
};

// Answers with the token ids of the reference's; none is compared where they are equal by force.
struct SameTokens {
  int64_t identical = 0, compared = 0;
  std::optional<double> share;
};

// Cells (prompt, sample) of the arm and its reference in which an answer of either runs in a loop,
// out of those both have; the speedup over the others, where that is another figure.
struct LoopCounts {
  int64_t degenerate = 0, cells = 0;
  std::optional<double> speedup_without;
  std::optional<base::Interval> interval_without;
  double n_eff_without = 0;
};

// Of an arm that was made to follow its reference's text (view v_divergence): places at which it
// had a say, at how many it would have gone on otherwise, of these near ties, and the largest gap.
struct ReplayCounts {
  int64_t asked = 0, differing = 0, near_ties = 0;
  std::optional<double> largest_gap;
};

// A step of plain decoding with every place of the batch taken, beside the run's own table of row
// costs, measured before its first token: T(B), one row for each of B sequences. Milliseconds.
struct StepBesideCost {
  double step_ms = 0, table_ms = 0;  // step_ms: the median
  bool own_table = true;             // of so many sequences; else T(B) of one sequence's B rows
  double ratio() const { return step_ms / table_ms; }
};

// Of an arm in a run with batches: how it fares at its batch size.
struct BatchFigures {
  std::optional<Estimate> tok_s;  // of the whole batch; its value is SpeedFigures::tok_s
  // Decode speed over that of plain decoding at batch 1 (RunData::reference_alone), ratio of sums.
  std::optional<Estimate> over_alone;
  // Speedup at this batch as predicted from the steps at batch 1 and T(n) (Predictor).
  std::optional<Estimate> predicted;
  std::optional<double> members, rows;  // means over steps; rows of the target's forwards, of all
  // Of steps in which every place was taken: their mean time, and that over plain decoding's at the
  // same batch, T(Bn)/T(B).
  std::optional<double> step_ms, step_ratio;
  std::optional<Percentiles> first_token_ms, per_token_ms, gap_ms;  // BatchMeasures
  std::optional<double> longest_gap_ms;
  SameTokens same_as_alone;  // against plain decoding at batch 1; nothing compared at batch 1
  bool on_front = false;  // no other arm has more tokens per second at no longer per_token_ms.p50
  // Steps that drafted nothing, and their time over that of plain decoding's steps of the same
  // batch at the same prompts and neighbouring contexts (UndraftedSteps).
  int64_t undrafted_steps = 0;
  std::optional<Estimate> undrafted_ratio;
  std::optional<StepBesideCost> beside_cost;  // of the baseline's arms
  std::optional<DraftLengths> lengths;        // of arms that other lengths are predicted from
  // Of the method over its batch sizes; the same in each of its rows, absent for plain decoding.
  std::optional<Crossover> crossover;
};

struct ReportRow {
  ArmInfo arm;
  std::string dataset;  // task name, or "all" for the pooled row when there are several
  // Label of the arm that speedup, what explains it and same tokens are against
  // (RunData::reference); "" without one, and where the arm is its own.
  std::string reference;
  bool against_server = false;  // that arm is one: it promises no tokens
  RowCounts counts;
  SpeedFigures speed;
  std::optional<Ranking> ranking;  // absent for arms that are not to be ranked, and for one prompt
  Acceptance acceptance;
  SpeedReasons why;
  SameTokens same_tokens;
  std::map<std::string, Quality> quality;  // by evaluator
  LoopCounts loops;
  std::optional<ReplayCounts> replay;
  std::optional<GpuUse> gpu;
  std::optional<results::EndpointTotals> server;  // of an arm that is one, over all data sets
  std::optional<EnergyUse> energy;                // of its board, or of the processor
  std::optional<BatchFigures> batch;              // in runs with a batch above 1
  // In runs of several machines. Times and rates then are each machine's: those of the row itself
  // (tok_s, first_token_ms, bandwidth, gpu, joules, waits in batches) are absent.
  std::optional<MachineFigures> machines;
};

}  // namespace evalrun::reports
