// Totals over the cells (prompt, sample) of one arm that its reference arm (RunData::reference)
// has, too: what speedup and its explanation are made of. Shared by report and compare.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "reports/data/sorted_map.h"

namespace evalrun::reports {

struct Counters {
  double n_decode = 0, steps = 0, drafted = 0, drafted_depth = 0, accepted = 0, emitted = 0;
  double target_forwards = 0, rows = 0, undrafted = 0;
  double draft_ns = 0, verify_ns = 0, decode_ns = 0, fastest_ns = 0, first_token_ns = 0;
  double answers = 0;  // cells added
  void add(const SampleRow& s);
  void add(const Counters& c);
  double tok_s() const { return decode_ns > 0 ? 1e9 * n_decode / decode_ns : 0; }
  double fastest_tok_s() const { return fastest_ns > 0 ? 1e9 * n_decode / fastest_ns : 0; }
};

// speedup = tau / (t_ratio * v + draft_share + overhead), v = verify share of the reference's step:
// an identity. With v taken as 1 it predicts the speedup up to `residual` = measured / predicted
// - 1.
struct Explanation {
  double tau = 0, t_ratio = 0, draft_share = 0, overhead = 0, residual = 0;
};
// nullopt when a total is zero (nothing decoded).
std::optional<Explanation> explain(const Counters& method, const Counters& base);

using PromptSample = std::pair<int64_t, int>;  // prompt id, sample

// The cells of one arm (and of one planted fault, "" for none).
using ArmCells = SortedMap<PromptSample, const SampleRow*>;
ArmCells cells_of(const RunData& data, int64_t arm_id);

// Cells whose answer runs in a loop in either arm: to be kept in both or left out of both.
std::set<PromptSample> looping_cells(const ArmCells& method, const ArmCells& base);
int64_t common_cells(const ArmCells& a, const ArmCells& b);
ArmCells without(ArmCells cells, const std::set<PromptSample>& left_out);

using PromptPairs = SortedMap<int64_t, PromptPair>;

struct Pairing {
  Counters method, base;
  PromptPairs prompts;   // by prompt id, sums over samples
  int64_t unpaired = 0;  // cells of either arm without partner
};
// `keep` says which prompts take part. Rows of a report need more of all prompts: pair_columns.h.
Pairing pair_with_reference(const ArmCells& method, const ArmCells& base,
                            const std::function<bool(int64_t prompt_id)>& keep);

std::vector<PromptPair> values_of(const PromptPairs& prompts);

}  // namespace evalrun::reports
