// What a forward of n rows costs on this machine: T(n), measured. A speculative method pays
// T(n)/T(1) plain steps for one of its own, so the best draft length follows from this table and
// not from the model. In a batch of B sequences a forward has n rows of each, and reads the keys
// and values of each: a table of its own. `evalrun cost` prints tables; a run measures them before
// its warm-up and offers them to the methods (MethodBuildContext::row_cost).
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/session.h"

namespace evalrun::engine {

struct RowCost {
  int rows = 0;                 // of each sequence
  double ms = 0;                // median over the rounds
  double q1_ms = 0, q3_ms = 0;  // quartiles
  PhaseTimes phases;            // medians; zeros without SessionOptions::measure_phases
};

struct PrefillCost {
  int tokens = 0;
  double ms = 0;  // median
  double tokens_per_s() const { return 1e3 * tokens / ms; }
};

// What memory gave right before and right after a round's forwards (bytes/s), and their T(1).
struct FloorRound {
  double before = 0, after = 0, ms = 0;
};

struct RowCostTable {
  std::string shape;          // measured with random weights of this shape; "" = with a model's
  int context = 0;            // committed tokens of each sequence below its rows
  int sequences = 1;          // computed together, n rows of each
  size_t bytes = 0;           // one forward must read at least: weights, every context's K and V
  int rounds = 0;             // forwards per row count, three times that up to 8 rows
  std::vector<RowCost> rows;  // ascending, without repeats; the first is rows = 1
  // Bytes/s of a plain read of such a footprint (of 1 GiB or ten times the caches at most), the
  // median over rounds; 0 = not probed. A round has the larger of its two looks.
  double bandwidth = 0;
  // bytes over T(1) over a round's bandwidth, the median over rounds: both of the same moment, as a
  // host moves threads between cores that read at different speeds. 0 when not probed.
  double floor_share = 0;
  std::vector<PrefillCost> prefill;

  bool empty() const { return rows.empty(); }
  // Milliseconds of a forward of n >= 1 rows a sequence: between measured counts on the line
  // through its neighbours, beyond the last one on the line through the last two (flat when they
  // fall). The table must not be empty.
  double ms(int n) const;
  double ratio(int n) const { return ms(n) / ms(1); }
  // Of a table of one sequence, what n rows of each of B >= 1 sequences cost where that was not
  // measured: ms(n) of it is ms(n B) of this table for every n, so ratio(n) is T(n B)/T(B). What
  // reading B caches costs is not in it. Of the rest it has shape and context alone: no quartiles,
  // phases, bytes or prompts. An empty table stays empty.
  RowCostTable of_batch(int batch) const;
  // bytes / bandwidth: no forward that reads every weight can be faster. 0 when not probed.
  double floor_ms() const {
    return bandwidth > 0 ? 1e3 * static_cast<double>(bytes) / bandwidth : 0;
  }
  // Sets bandwidth and floor_share from `bytes` and at least one round.
  void set_floor(std::span<const FloorRound> floor_rounds);
};

struct RowCostOptions {
  // Of each sequence. Any order; 1 is measured in any case. Close together where kernels change
  // their blocks of rows.
  std::vector<int> rows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64};
  int sequences = 1;  // of a session; all of them together have kMaxRows rows at most
  int context = 256;
  std::vector<int> prefill;  // prompt lengths, each of one sequence; empty = none
  int rounds = 0;            // 0 = as many as fit into `seconds`, at least three
  int most_rounds = 1000;
  double seconds = 1;  // for the rounds, all sessions together
  // Of each look at the bandwidth, one between any two rounds; 0 = no probe. GPUs have none.
  double bandwidth_seconds = 0;
  // Row counts whose first forward shows that three rounds would take longer are left out, the
  // largest first; 0 = none are.
  double limit_seconds = 0;
  // Called between rounds with the round at hand and their number as far as it is known.
  std::function<void(int, int)> progress;
};

// Tokens that each sequence of a session must hold for these options.
int row_cost_capacity(const RowCostOptions& options);

// Resets the sessions, commits `context` tokens of each sequence, and then measures all row counts
// of all sessions in turn, round by round, so that a drift of the machine falls on all of them
// alike. The rows of a sequence are a chain after its context, each asks for its largest logit, and
// nothing is committed. Prompt lengths come last. Leaves the sessions empty.
std::vector<RowCostTable> measure_row_cost(std::span<const std::unique_ptr<Session>> sessions,
                                           const RowCostOptions& options);

}  // namespace evalrun::engine
