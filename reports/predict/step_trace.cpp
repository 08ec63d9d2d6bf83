#include "reports/predict/step_trace.h"

#include <utility>

namespace evalrun::reports {

using results::Row;

std::vector<TracedAnswer> load_traces(const results::ResultStore& store, int64_t run_id,
                                      int64_t arm_id) {
  std::vector<TracedAnswer> answers;
  std::vector<int64_t> generations;
  store.query(
      "SELECT generation_id, prompt_id, sample, n_repeats FROM ("
      "  SELECT generation_id, prompt_id, sample,"
      "         row_number() OVER (PARTITION BY prompt_id, sample ORDER BY decode_ns, repeat)"
      "           AS place,"
      "         count(*) OVER (PARTITION BY prompt_id, sample) AS n_repeats"
      "  FROM v_generation_all WHERE run_id = ? AND arm_id = ? AND ok AND fault = '')"
      " WHERE place IN ((n_repeats + 1) / 2, (n_repeats + 2) / 2) ORDER BY prompt_id, sample",
      {run_id, arm_id}, [&](const Row& r) {
        generations.push_back(r.integer(0));
        answers.push_back({.prompt_id = r.integer(1),
                           .sample = static_cast<int>(r.integer(2)),
                           .weight = r.integer(3) % 2 == 0 ? 0.5 : 1,
                           .turns = {}});
        return true;
      });
  for (size_t i = 0; i < answers.size(); ++i) {
    std::vector<int64_t> turns;
    store.query("SELECT id, decode_ns FROM turn WHERE generation_id = ? ORDER BY idx",
                {generations[i]}, [&](const Row& r) {
                  turns.push_back(r.integer(0));
                  answers[i].turns.push_back({{}, {}, r.integer(1)});
                  return true;
                });
    for (size_t t = 0; t < turns.size(); ++t) {
      TracedTurn& turn = answers[i].turns[t];
      turn.steps = store.steps(turns[t]);
      store.query(
          "SELECT depth, rank, tested, accepted FROM node WHERE turn_id = ? ORDER BY depth, rank",
          {turns[t]}, [&](const Row& r) {
            turn.nodes.push_back({.depth = static_cast<int32_t>(r.integer(0)),
                                  .rank = static_cast<int32_t>(r.integer(1)),
                                  .tested = r.integer(2),
                                  .accepted = r.integer(3)});
            return true;
          });
    }
  }
  return answers;
}

}  // namespace evalrun::reports
