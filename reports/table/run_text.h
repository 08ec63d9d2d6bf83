// What several writers say about a run in words: prompts, sampling, estimator, settings.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reports/figures/report.h"

namespace evalrun::reports {

// Distinct values over the rows, in order of appearance: "avx512 / avx2".
template <typename F>
std::string distinct_over_rows(const Report& report, const F& value) {
  std::vector<std::string> seen;
  for (const ReportRow& r : report.rows) {
    const std::string v = value(r);
    if (std::find(seen.begin(), seen.end(), v) == seen.end()) seen.push_back(v);
  }
  return fmt::format("{}", fmt::join(seen, " / "));
}

std::string run_line(const RunInfo& run);  // "evalrun 0.1.0 · run 3 'before' · suite quick · ..."
std::string dataset_name(const std::string& dataset);  // "all data sets" for the pooled one
std::string weights_text(const ArmInfo& arm);          // "q4", "int8, KV int8"
std::string max_new_text(const ArmInfo& arm);          // "64", "64 (stop tokens ignored)"
// "Noise floor: plain decoding against itself gives ...": of the A/A arm.
std::string noise_floor_text(const ReportRow& aa);
std::string sampling_text(const ArmInfo& arm);  // "greedy", "temperature 0.8, top-k 40"
std::string estimator_text(Estimator estimator);
std::string interval_text(IntervalKind interval);  // "Student's t over prompts"
// Header of the speedup's column; names whose convention it is where it is not ours.
std::string speedup_header(Estimator estimator);
// A setting of the arm that is named only where it is not the usual one, `before` before it.
std::string setting_text(const ArmInfo& arm, const char* name, const char* before);
// "40 of 1319 prompts, unverified": how many the official set has, and whether the file was known.
// Runs of older versions did not store it.
std::string prompts_text(const Report& report, const std::string& dataset, int64_t prompts);
// What is not in the figures: of the run (unfinished, planted faults), of a data set (failed or
// unpaired cells). One sentence each.
std::vector<std::string> run_remarks(const Report& report);
std::string unfinished_remark(const RunInfo& run);  // how far it is, and what resumes it
std::vector<std::string> dataset_remarks(const Report& report, const std::string& dataset);
// "3 of 2,097, largest gap 1.250": places where a replayed arm would have left the text; "-" for
// others.
std::string replay_text(const ReportRow& row);
// "n=40, 2 unscored, 3 differ"
std::string quality_remarks(const Quality& quality);
// "cpu, 2 threads"; "cuda:0, Some GPU".
std::string place_text(const RunInfo& run, const ArmInfo& arm);
// The same with the instruction set: "cpu (avx512), 2 threads"; "cuda:0 (sm_90), Some GPU".
std::string engine_text(const RunInfo& run, const ArmInfo& arm);
// Names of the data sets in the order of the rows, the pooled one ("all") last.
std::vector<std::string> datasets_of(const Report& report);
int64_t prompts_of(const Report& report, const std::string& dataset);  // the most of any arm

}  // namespace evalrun::reports
