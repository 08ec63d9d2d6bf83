#include "results/generation_queries.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "results/queries.h"
#include "results/read_rows.h"

namespace evalrun::results {
namespace {

// Little-endian, as the store packs them.
std::vector<int32_t> unpack_tokens(const std::string& blob) {
  std::vector<int32_t> tokens(blob.size() / 4);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto byte = [&](size_t k) {
      return static_cast<uint32_t>(static_cast<unsigned char>(blob[4 * i + k])) << (8 * k);
    };
    tokens[i] = static_cast<int32_t>(byte(0) | byte(1) | byte(2) | byte(3));
  }
  return tokens;
}

std::optional<double> number_or_null(const Row& row, int column) {
  return row.is_null(column) ? std::nullopt : std::optional(row.number(column));
}

std::vector<NodeCount> read_nodes(const ResultStore& store, int64_t turn_id) {
  return all(
      store,
      "SELECT depth, rank, tested, accepted FROM node WHERE turn_id = ? ORDER BY depth, rank",
      {turn_id}, [](const Row& row) {
        return NodeCount{static_cast<int32_t>(row.integer(0)), static_cast<int32_t>(row.integer(1)),
                         row.integer(2), row.integer(3)};
      });
}

std::vector<DivergenceRecord> read_divergences(const ResultStore& store, int64_t turn_id) {
  return all(
      store,
      "SELECT idx, expected, found, gap, spacing FROM divergence WHERE turn_id = ? ORDER BY idx",
      {turn_id}, [](const Row& row) {
        return DivergenceRecord{
            static_cast<int32_t>(row.integer(0)), static_cast<int32_t>(row.integer(1)),
            static_cast<int32_t>(row.integer(2)), number_or_null(row, 3), row.number(4)};
      });
}

void read_batch(const ResultStore& store, int64_t turn_id, StoredTurn& turn) {
  store.query("SELECT call, slot, first_token_ns, wall_ns FROM batch_turn WHERE turn_id = ?",
              {turn_id}, [&](const Row& row) {
                turn.batch_call = row.integer(0);
                turn.batch = BatchTurnRecord{.slot = static_cast<int32_t>(row.integer(1)),
                                             .first_token_ns = row.integer(2),
                                             .wall_ns = row.integer(3),
                                             .steps = {}};
                return false;
              });
  if (!turn.batch) return;
  turn.batch->steps = all(
      store,
      "SELECT number, members, rows, emitted, ns, gap_ns FROM batch_step WHERE turn_id = ? ORDER "
      "BY idx",
      {turn_id}, [](const Row& row) {
        return BatchStepRecord{.number = static_cast<int32_t>(row.integer(0)),
                               .members = static_cast<int32_t>(row.integer(1)),
                               .rows = static_cast<int32_t>(row.integer(2)),
                               .emitted = static_cast<int32_t>(row.integer(3)),
                               .ns = row.integer(4),
                               .gap_ns = row.integer(5)};
      });
}

std::optional<int64_t> integer_or_null(const Row& row, int column) {
  return row.is_null(column) ? std::nullopt : std::optional(row.integer(column));
}

std::optional<EndpointTurnRecord> read_endpoint(const ResultStore& store, int64_t turn_id) {
  return one(
      store,
      "SELECT first_token_ns, total_ns, attempts, prompt_ms, decode_ms, prompt_tokens, "
      "cached_tokens, new_tokens, drafted, accepted, drafts, target_steps, arrivals FROM "
      "endpoint_turn WHERE turn_id = ?",
      {turn_id}, [](const Row& row) {
        EndpointTurnRecord server;
        server.first_token_ns = row.integer(0), server.total_ns = row.integer(1);
        server.attempts = static_cast<int32_t>(row.integer(2));
        server.prompt_ms = number_or_null(row, 3), server.decode_ms = number_or_null(row, 4);
        std::optional<int64_t>* counts[] = {
            &server.prompt_tokens, &server.cached_tokens, &server.new_tokens,  &server.drafted,
            &server.accepted,      &server.drafts,        &server.target_steps};
        int column = 5;
        for (std::optional<int64_t>* count : counts) *count = integer_or_null(row, column++);
        const nlohmann::json arrivals = nlohmann::json::parse(row.text(column), nullptr, false);
        if (!arrivals.is_array()) return server;
        for (const nlohmann::json& a : arrivals)
          if (a.is_array() && a.size() == 2 && a[0].is_number_integer() && a[1].is_number_integer())
            server.arrivals.push_back({a[0].get<int64_t>(), a[1].get<int32_t>()});
        return server;
      });
}

std::vector<StoredTurn> read_turns(const ResultStore& store, int64_t generation_id) {
  std::vector<StoredTurn> turns;
  std::vector<int64_t> ids;
  store.query(
      "SELECT id, n_prompt_tokens, tokens, text, stop, prefill_ns, draft_prefill_ns, decode_ns"
      " FROM turn WHERE generation_id = ? ORDER BY idx",
      {generation_id}, [&](const Row& row) {
        ids.push_back(row.integer(0));
        turns.push_back({.n_prompt_tokens = row.integer(1),
                         .tokens = unpack_tokens(row.blob(2)),
                         .text = row.text(3),
                         .stop = row.text(4),
                         .prefill_ns = row.integer(5),
                         .draft_prefill_ns = row.integer(6),
                         .decode_ns = row.integer(7),
                         .steps = {},
                         .nodes = {},
                         .divergences = {}});
        return true;
      });
  const bool batches = has_batches(store), endpoints = has_endpoints(store);
  for (size_t i = 0; i < ids.size(); ++i) {
    turns[i].steps = store.steps(ids[i]);
    turns[i].nodes = read_nodes(store, ids[i]);
    turns[i].divergences = read_divergences(store, ids[i]);
    if (batches) read_batch(store, ids[i], turns[i]);
    if (endpoints) turns[i].endpoint = read_endpoint(store, ids[i]);
  }
  return turns;
}

// What the machine did meanwhile.
std::optional<ClockRecord> read_clock(const ResultStore& store, int64_t generation_id) {
  return one(store,
             fmt::format("SELECT device_mhz, available_ns, own_ns, others_ns, steal_ns, preempted, "
                         "{} FROM clock WHERE generation_id = ?",
                         has_processor_energy(store) ? "energy_mj" : "NULL"),
             {generation_id}, [](const Row& row) {
               ClockRecord clock{number_or_null(row, 0), row.integer(1), row.integer(2),
                                 row.integer(3),         row.integer(4), row.integer(5)};
               if (!row.is_null(6)) clock.energy_mj = row.integer(6);
               return clock;
             });
}

std::optional<GpuRecord> read_gpu(const ResultStore& store, int64_t generation_id) {
  return one(store,
             "SELECT temperature_c, power_w, energy_mj, slowed_by, prefill_ns, draft_prefill_ns, "
             "draft_ns, verify_ns, commit_ns, graph_misses FROM gpu WHERE generation_id = ?",
             {generation_id}, [](const Row& row) {
               GpuRecord gpu;
               gpu.temperature_c = number_or_null(row, 0), gpu.power_w = number_or_null(row, 1);
               if (!row.is_null(2)) gpu.energy_mj = row.integer(2);
               gpu.slowed_by = row.text(3);
               if (!row.is_null(4))
                 gpu.busy = {row.integer(4), row.integer(5), row.integer(6),
                             row.integer(7), row.integer(8), row.integer(9)};
               return gpu;
             });
}

std::vector<ScoreRecord> read_scores(const ResultStore& store, int64_t generation_id) {
  return all(
      store,
      "SELECT evaluator, version, value, extracted, status, detail, suspicious, facts FROM score "
      "WHERE generation_id = ? ORDER BY evaluator, version",
      {generation_id}, [](const Row& row) {
        return ScoreRecord{row.text(0), row.text(1), number_or_null(row, 2), row.text(3),
                           row.text(4), row.text(5), row.integer(6) != 0,    row.text(7)};
      });
}

}  // namespace

std::optional<StoredGeneration> find_generation(const ResultStore& store, int64_t id) {
  auto found = one(
      store,
      "SELECT g.id, g.run_id, g.arm_id, g.prompt_id, a.label, p.task, p.name, g.status, g.fault,"
      " g.repeat, g.sample, g.block, g.slot, g.total_ns, g.asked"
      " FROM generation g JOIN arm a ON a.id = g.arm_id JOIN prompt p ON p.id = g.prompt_id"
      " WHERE g.id = ?",
      {id}, [](const Row& row) {
        StoredGeneration g;
        int column = 0;
        for (int64_t* n : {&g.id, &g.run_id, &g.arm_id, &g.prompt_id}) *n = row.integer(column++);
        for (std::string* text : {&g.arm_label, &g.task, &g.prompt, &g.status, &g.fault})
          *text = row.text(column++);
        for (int64_t* n : {&g.repeat, &g.sample, &g.block, &g.slot, &g.total_ns})
          *n = row.integer(column++);
        if (!row.is_null(column)) g.asked = row.integer(column);
        return g;
      });
  if (!found) return found;
  found->turns = read_turns(store, id);
  found->degenerate =
      one(store, "SELECT degenerate FROM v_generation_all WHERE run_id = ? AND generation_id = ?",
          {found->run_id, id}, [](const Row& row) { return row.integer(0) != 0; })
          .value_or(false);
  found->clock = read_clock(store, id);
  found->gpu = read_gpu(store, id);
  found->scores = read_scores(store, id);
  return found;
}

std::vector<Counterpart> counterparts(const ResultStore& store, const StoredGeneration& g) {
  return all(
      store,
      "SELECT g.id, a.label, a.method, a.id = (SELECT reference_id FROM v_reference WHERE "
      "arm_id = ?) FROM generation g JOIN arm a ON a.id = g.arm_id"
      " WHERE g.run_id = ? AND g.prompt_id = ? AND g.repeat = ? AND g.sample = ? ORDER BY a.id",
      {g.arm_id, g.run_id, g.prompt_id, g.repeat, g.sample}, [](const Row& row) {
        return Counterpart{row.integer(0), row.text(1), row.text(2), row.integer(3) != 0};
      });
}

std::vector<std::string> turn_texts(const ResultStore& store, int64_t generation_id) {
  return all<std::string>(store, "SELECT text FROM turn WHERE generation_id = ? ORDER BY idx",
                          {generation_id});
}

std::vector<std::vector<int32_t>> replayed_tokens(const ResultStore& store, int64_t arm_id,
                                                  int64_t prompt_id) {
  return all(store,
             "SELECT tokens FROM turn WHERE generation_id = (SELECT min(id) FROM generation WHERE "
             "arm_id = ? AND prompt_id = ? AND status = 'ok' AND asked IS NOT NULL) ORDER BY idx",
             {arm_id, prompt_id}, [](const Row& row) { return unpack_tokens(row.blob(0)); });
}

std::vector<std::vector<int32_t>> answer_tokens(const ResultStore& store, int64_t arm_id,
                                                int64_t prompt_id, int64_t sample) {
  return all(store,
             "SELECT tokens FROM turn WHERE generation_id = (SELECT min(id) FROM generation WHERE "
             "arm_id = ? AND prompt_id = ? AND sample = ? AND status = 'ok' AND fault = '') ORDER "
             "BY idx",
             {arm_id, prompt_id, sample},
             [](const Row& row) { return unpack_tokens(row.blob(0)); });
}

std::vector<AnswerRow> answers(const ResultStore& store, int64_t run_id) {
  return all(
      store,
      fmt::format("SELECT g.id, a.label, a.role, p.task, p.name, p.category, p.turns, g.sample, "
                  "p.id, {} FROM v_answer g JOIN arm a ON a.id = g.arm_id "
                  "JOIN prompt p ON p.id = g.prompt_id WHERE g.run_id = ? AND g.fault = '' "
                  "ORDER BY p.id, a.id, g.sample",
                  has_groups(store) ? "p.group_name" : "''"),
      {run_id}, [](const Row& row) {
        return AnswerRow{row.integer(0),
                         row.text(1),
                         row.text(2),
                         row.text(3),
                         row.text(4),
                         row.text(5),
                         nlohmann::json::parse(row.text(6)).get<std::vector<std::string>>(),
                         static_cast<int32_t>(row.integer(7)),
                         row.integer(8),
                         row.text(9)};
      });
}

std::vector<AnswerPairRow> answers_beside_baseline(const ResultStore& store, int64_t run_id) {
  return all(
      store,
      "SELECT g.id, a.label, p.task, p.name, g.repeat, g.sample,"
      "  (SELECT text FROM turn WHERE generation_id = g.id ORDER BY idx DESC LIMIT 1),"
      "  (SELECT text FROM turn WHERE generation_id = b.id ORDER BY idx DESC LIMIT 1),"
      "  b.id IS NULL "
      "FROM v_answer g JOIN arm a ON a.id = g.arm_id JOIN prompt p ON p.id = g.prompt_id "
      "JOIN arm base ON base.id = (SELECT min(id) FROM arm WHERE run_id = g.run_id AND "
      "  role = 'baseline') "
      "LEFT JOIN generation b ON b.arm_id = base.id AND b.prompt_id = g.prompt_id "
      "  AND b.repeat = g.repeat AND b.sample = g.sample AND b.status = 'ok' AND b.fault = '' "
      "WHERE g.run_id = ? AND g.fault = '' AND a.id <> base.id "
      "ORDER BY a.id, p.id, g.sample",
      {run_id}, [](const Row& row) {
        return AnswerPairRow{row.integer(0),
                             row.text(1),
                             row.text(2),
                             row.text(3),
                             static_cast<int32_t>(row.integer(4)),
                             static_cast<int32_t>(row.integer(5)),
                             row.text(6),
                             row.integer(8) != 0 ? std::nullopt : std::optional(row.text(7))};
      });
}

std::vector<UnscoredAnswer> unscored_answers(const ResultStore& store, int64_t run_id,
                                             int64_t prompt_id, const EvaluatorName& evaluator) {
  std::vector<UnscoredAnswer> all;
  store.query(
      "SELECT g.id, g.arm_id, t.text, t.tokens FROM v_answer g JOIN turn t ON t.generation_id = "
      "g.id "
      "WHERE g.run_id = ? AND g.prompt_id = ? "
      "AND NOT EXISTS (SELECT 1 FROM score s WHERE s.generation_id = g.id AND s.evaluator = ? "
      "  AND s.version = ? AND s.status NOT IN ('sandbox_error', 'toolchain_missing') "
      "  AND coalesce(json_extract(s.facts, '$.options'), '') = ?) "
      "ORDER BY g.id, t.idx",
      {run_id, prompt_id, evaluator.name, evaluator.version, evaluator.options},
      [&](const Row& row) {
        if (all.empty() || all.back().generation_id != row.integer(0))
          all.push_back({row.integer(0), row.integer(1), {}, {}});
        all.back().texts.push_back(row.text(2));
        all.back().tokens.push_back(unpack_tokens(row.blob(3)));
        return true;
      });
  return all;
}

std::vector<RepeatTimeRow> repeat_times(const ResultStore& store, int64_t run_id, bool planted) {
  std::vector<RepeatTimeRow> rows;
  store.query(
      "SELECT arm_id, prompt_id, sample, decode_ns FROM v_generation_all WHERE run_id = ? AND ok "
      "AND (? OR fault = '')",
      {run_id, static_cast<int64_t>(planted)}, [&](const Row& r) {
        rows.push_back({r.integer(0), r.integer(1), r.integer(2), r.number(3)});
        return true;
      });
  return rows;
}

std::vector<StepTimesRow> step_times(const ResultStore& store, int64_t run_id, bool planted) {
  std::vector<StepTimesRow> rows;
  int64_t generation = 0;
  store.query(
      "SELECT g.id, g.arm_id, g.prompt_id, g.sample, g.repeat, g.steps_hash, s.emitted,"
      "  s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns "
      "FROM generation g JOIN turn t ON t.generation_id = g.id JOIN step s ON s.turn_id = t.id "
      "WHERE g.run_id = ? AND g.status = 'ok' AND (? OR g.fault = '') "
      "ORDER BY g.id, t.idx, s.idx",
      {run_id, static_cast<int64_t>(planted)}, [&](const Row& r) {
        if (r.integer(0) != generation) {
          generation = r.integer(0);
          rows.push_back({.arm_id = r.integer(1),
                          .prompt_id = r.integer(2),
                          .sample = r.integer(3),
                          .repeat = r.integer(4),
                          .steps_hash = r.text(5),
                          .ns = {}});
        }
        rows.back().emitted += r.integer(6);
        rows.back().ns.push_back(r.number(7));
        return true;
      });
  return rows;
}

}  // namespace evalrun::results
