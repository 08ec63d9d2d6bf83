#include "results/batch_queries.h"

#include "results/queries.h"

namespace evalrun::results {

void for_batch_turns(const ResultStore& store, int64_t run_id,
                     const std::function<void(const BatchTurnRow&)>& use) {
  store.query(
      "SELECT arm_id, prompt_id, turn, n_tokens, first_token_ns, wall_ns FROM v_batch_turn "
      "WHERE run_id = ? AND fault = '' ORDER BY generation_id, turn",
      {run_id}, [&](const Row& r) {
        use({r.integer(0), r.integer(1), r.integer(2), r.integer(3), r.integer(4), r.integer(5)});
        return true;
      });
}

void for_batch_members(const ResultStore& store, int64_t run_id,
                       const std::function<void(const BatchMemberRow&)>& use) {
  int64_t context = 0;
  store.query(
      "SELECT arm_id, prompt_id, coalesce(call, 0), coalesce(number, idx), coalesce(members, 1), "
      "  coalesce(batch_rows, rows), coalesce(batch_emitted, emitted), coalesce(batch_ns, own_ns), "
      "  emitted, coalesce(gap_ns, own_ns + CASE idx WHEN 0 THEN draft_prefill_ns ELSE 0 END), "
      "  drafted, n_prompt_tokens, idx "
      "FROM (SELECT g.id, t.idx AS turn, g.arm_id, g.prompt_id, t.draft_prefill_ns, "
      "        t.n_prompt_tokens, b.call, s.idx, s.rows, s.drafted, s.emitted, "
      "        s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns AS own_ns, "
      "        m.number, m.members, m.rows AS batch_rows, m.emitted AS batch_emitted, "
      "        m.ns AS batch_ns, m.gap_ns "
      "      FROM generation g JOIN turn t ON t.generation_id = g.id "
      "      JOIN step s ON s.turn_id = t.id "
      "      LEFT JOIN batch_turn b ON b.turn_id = t.id "
      "      LEFT JOIN batch_step m ON m.turn_id = t.id AND m.idx = s.idx "
      "      WHERE g.run_id = ? AND g.status = 'ok' AND g.fault = '') "
      "ORDER BY id, turn, idx",
      {run_id}, [&](const Row& r) {
        // The prefill's token is no part of it: the turn's first step computes its keys.
        if (r.integer(12) == 0) context = r.integer(11);
        use({r.integer(0), r.integer(1), r.integer(2), r.integer(3), r.integer(4), r.integer(5),
             r.integer(6), r.integer(7), r.integer(8), r.integer(9), r.integer(10), context});
        context += r.integer(8);
        return true;
      });
}

std::map<int64_t, BatchStepSums> batch_step_sums(const ResultStore& store, int64_t run_id) {
  std::map<int64_t, BatchStepSums> sums;
  if (!has_batches(store)) return sums;
  store.query(
      "SELECT arm_id, count(*), sum(members), sum(rows), sum(emitted), sum(ns) FROM v_batch_step "
      "WHERE run_id = ? GROUP BY arm_id",
      {run_id}, [&](const Row& r) {
        sums[r.integer(0)] = {r.integer(1), r.integer(2), r.integer(3), r.integer(4), r.integer(5)};
        return true;
      });
  return sums;
}

}  // namespace evalrun::results
