// What the phases of a step cost in a run, as functions of rows and depth: from its stored steps,
// and between and beyond them from the run's T(n) table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "reports/predict/step_trace.h"

namespace evalrun::reports {

// Time of a forward by its number of rows, in any unit; empty = not known.
using RowTime = std::function<double(int rows)>;

// How many times there are, and their sum in nanoseconds.
struct TimeSum {
  size_t n = 0;
  double ns = 0;
};
using TimesByRows = std::map<int, TimeSum>;

// Verify times of all steps of a run by their rows, whatever method took them. The store must
// outlive it.
class VerifyTimes {
 public:
  VerifyTimes(const results::ResultStore& store, int64_t run_id) : store_(store), run_id_(run_id) {}
  // Of arms that decode the model of this hash in batches of this size, but for one that is left
  // out (0 = none). Those of a batch are shares of its steps. Read once.
  const TimesByRows& of(const std::string& model_hash, int64_t batch, int64_t left_out_arm);

 private:
  const results::ResultStore& store_;
  int64_t run_id_;
  std::map<std::tuple<std::string, int64_t, int64_t>, TimesByRows> read_;
};

// The same of a machine, in one unit: of one sequence, and by number of sequences, each of which
// has so many rows.
struct RowTimes {
  RowTime one = {};
  std::map<int, RowTime> batches = {};
  int context = 0;  // committed tokens of each sequence when they were measured; 0 = not known

  explicit operator bool() const { return static_cast<bool>(one); }
  // Of n rows of each of B >= 1 sequences: the table of B, or else the time of n B rows of one.
  RowTime of(int sequences) const;
};

// Verify time by rows. Row counts of enough steps have their mean (what adds up to a decode time).
// The others have what the table says, times how far it was off at the neighbours: a table is
// measured alone, before the run. Without a table: the line through the neighbours.
class VerifyCost {
 public:
  static constexpr size_t kLeastSteps = 50;
  // One count of rows must have enough times, or the most there are is taken.
  VerifyCost(const TimesByRows& times, RowTime table);
  double ns(int rows) const;

 private:
  std::map<int, double> known_;
  RowTime table_;
};

// Draft time by depth: of steps that drafted nothing their mean, of others the line through the
// medians of the depths; proportional to depth where the line would start below zero (noise), or
// where only one depth was drafted often enough.
class DraftCost {
 public:
  static constexpr size_t kLeastSteps = 5;
  explicit DraftCost(std::span<const TracedAnswer> answers);
  double ns(int depth) const;
  // Only one depth was drafted: the line is an assumption.
  bool assumed() const { return assumed_; }

 private:
  double nothing_ = 0, base_ = 0, slope_ = 0;
  bool assumed_ = false;
};

}  // namespace evalrun::reports
