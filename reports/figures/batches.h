// What batch sizes add to a report: throughput, what a step costs, how long sequences wait, and up
// to which batch a method pays (docs/measurement.md, "Batches in reports").
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "reports/data/pairing.h"
#include "reports/figures/batch_measures.h"
#include "reports/figures/draft_lengths.h"
#include "reports/figures/report_options.h"
#include "reports/figures/report_row.h"
#include "reports/predict/predict.h"
#include "results/store.h"

namespace evalrun::reports {

class BatchBuilder {
 public:
  // The store and the run must outlive the builder.
  BatchBuilder(const results::ResultStore& store, const RunData& data,
               const ReportOptions& options);
  BatchBuilder(const BatchBuilder&) = delete;
  BatchBuilder& operator=(const BatchBuilder&) = delete;

  // ReportRow::batch of the rows of one data set, or of all of them (`tasks`).
  void add(std::span<ReportRow> rows, const std::set<std::string>& tasks);

 private:
  using Tasks = std::set<std::string>;

  BatchFigures figures(const ArmInfo& arm, const Tasks& tasks) const;
  std::optional<Estimate> tok_s(const ArmInfo& arm, const Tasks& tasks) const;
  std::optional<StepBesideCost> beside_cost(const ArmInfo& arm, const BatchMeasures& own) const;
  void add_undrafted(const ArmInfo& arm, const Tasks& tasks, BatchFigures& f) const;
  std::optional<Estimate> over_alone(const ArmInfo& arm, const Tasks& tasks) const;
  // `sizes`: rows of one method, by batch.
  std::optional<Crossover> crossover_of(std::span<ReportRow* const> sizes,
                                        const Tasks& tasks) const;
  void predict(std::span<ReportRow* const> sizes, const Tasks& tasks) const;
  const ArmCells& cells(const ArmInfo& arm) const { return cells_.at(arm.id); }

  const RunData& data_;
  PromptDesigns designs_;
  PredictSources sources_;  // all prompts
  RunBatchMeasures measures_;
  std::map<int64_t, std::string> task_of_;  // by prompt
  std::map<int64_t, ArmCells> cells_;       // by arm
  LengthBuilder lengths_;                   // of the members above
};

}  // namespace evalrun::reports
