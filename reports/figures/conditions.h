// Whether the machine was fit to measure while a run was measured: what it stored with every
// generation (table clock), as a verdict. docs/measurement.md, "Protocol".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/data/run_data.h"
#include "results/store.h"

namespace evalrun::reports {

struct Conditions {
  int64_t generations = 0;  // finished ones with a clock; 0: older runs, or nothing was readable
  // Of them: others had more than a tenth of the processor time, and more than 50 ms of it.
  int64_t disturbed = 0;
  double others_share = 0;           // of the processor time: other processes and the kernel
  double steal_share = 0;            // other guests of the host
  int64_t steal_ns = 0;              // the same as processor time, in ticks of some milliseconds
  std::optional<double> device_mhz;  // median; absent when not readable
  std::vector<std::string> throttling = {};    // problems, one sentence each
  std::vector<std::string> interference = {};  // likewise
  bool quotable() const { return throttling.empty() && interference.empty(); }
};

// Limits of the verdict.
// Processor time that others may have while a generation runs (view v_clock, where it must be 50
// ms, too, for a generation to be disturbed).
inline constexpr double kMostOfOthers = 0.10;
inline constexpr double kMostDisturbed = 0.10;    // share of the generations
inline constexpr double kMostBetweenArms = 0.01;  // arms' median clocks against the baseline's
inline constexpr double kMostDrift = 0.05;        // clock, last third against first third
inline constexpr int64_t kFewestClocks = 5;       // of an arm, for a median

Conditions read_conditions(const results::ResultStore& store, int64_t run_id);
Conditions read_conditions(const results::ResultStore& store, const RunData& data);

// One sentence: what it was like, and whether the figures may be quoted. "" without clocks.
// `noise`: what else speaks against quoting, a clause each.
std::string conditions_text(const Conditions& conditions,
                            const std::vector<std::string>& noise = {});

}  // namespace evalrun::reports
