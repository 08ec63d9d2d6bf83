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

std::vector<CountedAnswer> endpoint_answers(const ResultStore& store, int64_t arm_id) {
  std::vector<CountedAnswer> answers;
  if (!has_endpoints(store)) return answers;
  store.query(
      "SELECT p.key, g.tokens_hash, g.prompt_id, g.sample, sum(max(t.n_tokens - 1, 0)), "
      "coalesce(sum(e.target_steps), 0), coalesce(sum(e.drafted), 0), "
      "coalesce(sum(e.accepted), 0), count(*) = count(e.target_steps) FROM v_answer g "
      "JOIN prompt p ON p.id = g.prompt_id JOIN turn t ON t.generation_id = g.id "
      "JOIN endpoint_turn e ON e.turn_id = t.id WHERE g.arm_id = ? AND g.fault = '' GROUP BY g.id "
      "ORDER BY p.key, g.sample",
      {arm_id}, [&](const Row& r) {
        answers.push_back({.prompt_key = r.text(0),
                           .tokens_hash = r.text(1),
                           .prompt_id = r.integer(2),
                           .sample = r.integer(3),
                           .tokens = r.integer(4),
                           .steps = r.integer(5),
                           .drafted = r.integer(6),
                           .accepted = r.integer(7),
                           .counted = r.integer(8) != 0});
        return true;
      });
  return answers;
}

AskedTwice asked_twice(const ResultStore& store, int64_t arm_id, int64_t other_arm_id,
                       int64_t other_repeat) {
  AskedTwice twice;
  store.query(
      "SELECT count(*), coalesce(sum(a.tokens_hash <> b.tokens_hash), 0) FROM generation a "
      "JOIN generation b ON b.arm_id = ? AND b.prompt_id = a.prompt_id AND b.sample = a.sample "
      "AND b.repeat = ? AND b.status = 'ok' AND b.fault = '' "
      "WHERE a.arm_id = ? AND a.repeat = 0 AND a.status = 'ok' AND a.fault = ''",
      {other_arm_id, other_repeat, arm_id}, [&](const Row& r) {
        twice = {.answers = r.integer(0), .differing = r.integer(1)};
        return false;
      });
  return twice;
}

}  // namespace evalrun::results
