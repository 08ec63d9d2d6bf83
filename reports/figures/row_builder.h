// Makes the rows of a report from what the store says about a run.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "reports/data/best_set.h"
#include "reports/data/bootstrap.h"
#include "reports/data/pair_columns.h"
#include "reports/figures/quality.h"
#include "reports/figures/report_options.h"
#include "reports/figures/report_row.h"
#include "results/endpoint_queries.h"
#include "results/store.h"

namespace evalrun::reports {

// Figures of the store by arm and data set; a pooled row adds data sets up.
struct Aggregates {
  RunCounts counts;  // empty unless asked for
  RunScores quality;
  std::map<ArmTask, ReplayCounts> replays;
  GpuTotals gpu;
  EnergyTotals energy;
  std::map<int64_t, results::EndpointTotals> servers;  // by arm
};
Aggregates load_aggregates(const results::ResultStore& store, const RunData& data,
                           const ArmInfo* control, bool step_detail);

class RowBuilder {
 public:
  // Both must outlive the builder.
  RowBuilder(const RunData& data, const Aggregates& aggregates, const ReportOptions& options);

  // `tasks`: one, or all of them for the pooled row. Without what score() and rank() add.
  ReportRow row(const ArmInfo& arm, const std::string& name,
                const std::set<std::string>& tasks) const;
  // What compares arms with each other, of `rows` of one data set (or of all, `tasks`): quality
  // with its differences from the control,
  void score(std::span<ReportRow> rows, const std::set<std::string>& tasks) const;
  // and ranks of those that may be ranked, in each batch by themselves.
  void rank(std::span<ReportRow> rows, const std::set<std::string>& tasks) const;

 private:
  using Tasks = std::set<std::string>;

  const ArmCells& cells(const ArmInfo& arm, const Tasks& tasks) const;
  // Of the pairs' prompts; `column` is one of theirs.
  std::optional<Estimate> headline(const PairColumns& pairs,
                                   std::span<const PromptPair> column) const;

  // A group of the row each.
  RowCounts counts(const ArmInfo& arm, const ArmCells& own, const Tasks& tasks) const;
  SpeedFigures speed(const PairColumns& pairs, bool against_itself) const;
  Acceptance acceptance(const ArmInfo& arm, const Counters& counters, const ArmCells& own,
                        const Tasks& tasks) const;
  // Whether its steps are counted: not of servers that do not tell of each answer.
  bool knows_steps(const ArmInfo& arm) const;
  std::optional<Estimate> tau(const ArmInfo& arm, const ArmCells& own) const;
  std::vector<NodeAcceptance> acceptance_by_node(const ArmInfo& arm, const Tasks& tasks) const;
  std::optional<double> bandwidth(const Counters& counters) const;
  SameTokens same_tokens(const ArmInfo& arm, const Tasks& tasks) const;
  LoopCounts loops(const ArmCells& own, const ArmCells& base, const std::set<PromptSample>& looping,
                   bool against_itself, int64_t batch) const;
  void rank_beside(const ArmInfo& baseline, std::span<ReportRow> rows, const Tasks& tasks) const;
  std::optional<ReplayCounts> replay(const ArmInfo& arm, const Tasks& tasks) const;

  const RunData& data_;
  const Aggregates& aggregates_;
  Estimator estimator_;
  bool exclude_degenerate_;
  bool bootstrap_;
  Resampling resampling_;
  PromptDesigns designs_;
  std::unordered_map<int64_t, std::string> task_of_;  // by prompt
  std::map<int64_t, ArmCells> cells_;                 // by arm
  std::map<ArmTask, ArmCells> cells_of_task_;
  std::set<int64_t> looping_;  // arms with an answer that runs in a loop
};

}  // namespace evalrun::reports
