// Two sides with as many repeats each: the fastest of nine is faster than the fastest of three,
// also where nothing changed.
#pragma once
#include <vector>

#include "reports/data/run_data.h"
#include "results/store.h"

namespace evalrun::reports {

// What the fastest of `k` of these would be on average, over all choices of k (a U-statistic).
// 1 <= k <= the number of values.
double expected_fastest(std::vector<double> times, int k);

// A run and the store that it was loaded from, with these faults.
struct StoredRunData {
  const results::ResultStore* store;
  RunData* data;
  Faults faults = Faults::kLeaveOut;
};
// Sets fastest_ns of every cell (arm, prompt, sample) to what it would be with the repeats of the
// run that has fewest of it.
void equalise_repeats(const std::vector<StoredRunData>& runs);

}  // namespace evalrun::reports
