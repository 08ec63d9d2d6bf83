// Figures of `evalrun load`, a row for each level and server (docs/load.md). TTFT, TPOT, ITL and
// the longest stall mean what they mean in batches (docs/measurement.md, "Batches in reports").
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/data/estimators.h"
#include "reports/document/document.h"
#include "reports/load/load_percentiles.h"
#include "results/load_records.h"

namespace evalrun::reports {

// Latencies that a request must keep to count for goodput. Absent: not asked for.
struct LoadObjective {
  std::optional<double> ttft_ms, tpot_ms;
  bool empty() const { return !ttft_ms && !tpot_ms; }
};
// "ttft=500ms,tpot=50ms", also "0.5s". Throws usage_error naming `where`.
LoadObjective parse_objective(const std::string& text, const std::string& where);

struct LoadRow {
  int level = 0, server = 0;  // places in the setup
  int64_t blocks = 0, requests = 0, failed = 0, late = 0, retried = 0, uncounted = 0;
  double wall_s = 0;
  double client_cpu = 0;  // cores that the client took
  double in_flight = 0;   // requests, mean over time
  // By blocks: tokens and finished requests over the time of the blocks.
  std::optional<Estimate> tok_s, req_s;
  // Tokens that came while all clients of a closed loop were busy, over that time.
  std::optional<double> full_tok_s;
  std::optional<Estimate> tok_s_ratio;  // over the baseline's at this level, block by block
  std::optional<Estimate> tpot_ratio;   // time per token over the baseline's, by prompts
  // Of finished requests. TTFT and latency count from the scheduled arrival.
  std::optional<LoadPercentiles> ttft, tpot, itl, gap, stall, latency;
  std::optional<double> longest_stall_ms;
  // Open loop: requests a second that arrived, and that were answered, in the second halves of the
  // blocks.
  std::optional<double> offered_rps, served_rps;
  std::optional<bool> saturated;  // absent where the blocks are too short to tell
  std::optional<double> good_share, good_rps;
  std::optional<base::Interval> good_interval;  // of the share
  std::optional<double> alpha;                  // accepted over drafted tokens
  // Time per token over the baseline's, of answers in which no draft token was accepted.
  std::optional<Estimate> idle_ratio;
  std::string problem;  // of the first request that failed
};

struct LoadReport {
  results::LoadSetup setup;
  LoadObjective objective;
  std::vector<LoadRow> rows;  // level by level, servers in their order; measured ones alone
  int64_t unfinished = 0;
};
LoadReport load_report(const results::LoadRun& run, const LoadObjective& objective = {});

Document document(const LoadReport& report);
std::string to_json(const LoadReport& report);
// Whether a server answered no request of a level.
bool all_failed(const LoadRow& row);

}  // namespace evalrun::reports
