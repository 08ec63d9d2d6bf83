#include "results/endpoint_queries.h"

#include "results/queries.h"

namespace evalrun::results {

std::map<int64_t, EndpointTotals> endpoint_totals(const ResultStore& store, int64_t run_id) {
  std::map<int64_t, EndpointTotals> totals;
  if (!has_endpoints(store)) return totals;
  store.query(
      "SELECT arm_id, count(*), count(target_steps), sum(attempts - 1), count(cached_tokens), "
      "coalesce(sum(cached_tokens), 0) FROM v_endpoint_turn WHERE run_id = ? AND fault = '' "
      "GROUP BY arm_id",
      {run_id}, [&](const Row& r) {
        totals[r.integer(0)] = {.turns = r.integer(1),
                                .with_steps = r.integer(2),
                                .retries = r.integer(3),
                                .with_cached = r.integer(4),
                                .cached_tokens = r.integer(5)};
        return true;
      });
  return totals;
}

}  // namespace evalrun::results
