#include "results/turn_rows.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "results/tally.h"

namespace evalrun::results {

static_assert(std::endian::native == std::endian::little,
              "token blobs are stored as they lie in memory");
std::string token_blob(const std::vector<int32_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)};
}

Statement& TurnRows::prepared(sqlite3* db, Slot& slot, std::string_view sql) {
  if (!slot) slot = std::make_unique<Statement>(db, path_, sql);
  return *slot;
}

void TurnRows::forget_statements() {
  for (Slot* slot :
       {&turn_, &step_, &node_, &divergence_, &batch_turn_, &batch_step_, &endpoint_turn_})
    slot->reset();
}

void TurnRows::insert(sqlite3* db, int64_t generation_id, size_t index, const TurnRecord& t,
                      const std::string& text, int64_t batch_call) {
  const TallyTurn sum = counters_of(t);
  int64_t commit_ns = 0, other_ns = 0;
  for (const StepRecord& s : t.steps) commit_ns += s.commit_ns, other_ns += s.other_ns;
  Statement& row = prepared(
      db, turn_,
      "INSERT INTO turn (generation_id, idx, n_prompt_tokens, n_tokens, n_steps, drafted, "
      "drafted_depth, accepted, emitted, target_forwards, rows, undrafted, draft_ns, "
      "verify_ns, commit_ns, other_ns, prefill_ns, draft_prefill_ns, decode_ns, stop, text, "
      "tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  row << generation_id << static_cast<int64_t>(index) << t.n_prompt_tokens << sum.n_tokens
      << sum.n_steps << sum.drafted << sum.drafted_depth << sum.accepted << sum.emitted
      << sum.target_forwards << sum.rows << sum.undrafted << sum.draft_ns << sum.verify_ns
      << commit_ns << other_ns << t.prefill_ns << t.draft_prefill_ns << t.decode_ns
      << std::string(to_string(t.stop)) << text;
  row.blob(token_blob(t.tokens)).run();
  const int64_t turn_id = sqlite3_last_insert_rowid(db);
  insert_steps(db, turn_id, t);
  if (t.batch) insert_batch(db, turn_id, *t.batch, batch_call);
  if (t.endpoint) insert_endpoint(db, turn_id, *t.endpoint);
}

void TurnRows::insert_steps(sqlite3* db, int64_t turn_id, const TurnRecord& t) {
  Statement& step =
      prepared(db, step_, "INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (size_t k = 0; k < t.steps.size(); ++k) {
    const StepRecord& s = t.steps[k];
    step << turn_id << static_cast<int64_t>(k) << s.rows << s.drafted << s.drafted_depth
         << s.accepted << s.emitted << s.target_forwards << s.draft_ns << s.verify_ns << s.commit_ns
         << s.other_ns;
    step.run();
  }
  Statement& node = prepared(db, node_, "INSERT INTO node VALUES (?, ?, ?, ?, ?)");
  for (const NodeCount& n : t.nodes) {
    node << turn_id << n.depth << n.rank << n.tested << n.accepted;
    node.run();
  }
  Statement& place = prepared(db, divergence_, "INSERT INTO divergence VALUES (?, ?, ?, ?, ?, ?)");
  for (const DivergenceRecord& d : t.divergences) {
    place << turn_id << d.index << d.expected << d.found << d.gap << d.spacing;
    place.run();
  }
}

void TurnRows::insert_batch(sqlite3* db, int64_t turn_id, const BatchTurnRecord& batch,
                            int64_t call) {
  Statement& turn = prepared(db, batch_turn_, "INSERT INTO batch_turn VALUES (?, ?, ?, ?, ?)");
  turn << turn_id << call << batch.slot << batch.first_token_ns << batch.wall_ns;
  turn.run();
  Statement& step =
      prepared(db, batch_step_, "INSERT INTO batch_step VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  for (size_t k = 0; k < batch.steps.size(); ++k) {
    const BatchStepRecord& s = batch.steps[k];
    step << turn_id << static_cast<int64_t>(k) << s.number << s.members << s.rows << s.emitted
         << s.ns << s.gap_ns;
    step.run();
  }
}

void TurnRows::insert_endpoint(sqlite3* db, int64_t turn_id, const EndpointTurnRecord& server) {
  nlohmann::json arrivals = nlohmann::json::array();
  for (const EndpointArrival& a : server.arrivals)
    arrivals.push_back(nlohmann::json::array({a.ns, a.tokens}));
  Statement& turn =
      prepared(db, endpoint_turn_,
               "INSERT INTO endpoint_turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  turn << turn_id << server.first_token_ns << server.total_ns << server.attempts << server.prompt_ms
       << server.decode_ms << server.prompt_tokens << server.cached_tokens << server.new_tokens
       << server.drafted << server.accepted << server.drafts << server.target_steps
       << arrivals.dump();
  turn.run();
}

}  // namespace evalrun::results
