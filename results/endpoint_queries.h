// What servers said of their answers (table endpoint_turn), by arm.
#pragma once
#include <cstdint>
#include <map>

#include "results/store.h"

namespace evalrun::results {

// Sums over the turns of finished generations without a planted fault.
struct EndpointTotals {
  int64_t turns = 0;
  int64_t with_steps = 0;  // turns whose steps of the target the server lets us count
  int64_t retries = 0;     // requests sent again
  int64_t with_cached = 0, cached_tokens = 0;  // turns that tell what their prompt's cache gave
};
// Of arms that are servers; none in files before version 12.
std::map<int64_t, EndpointTotals> endpoint_totals(const ResultStore& store, int64_t run_id);

}  // namespace evalrun::results
