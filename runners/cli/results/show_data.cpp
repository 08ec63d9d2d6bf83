#include "runners/cli/results/show_data.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/data/pairing.h"
#include "reports/data/run_data.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

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

std::vector<results::NodeCount> read_nodes(const results::ResultStore& store, int64_t turn_id) {
  std::vector<results::NodeCount> nodes;
  store.query(
      "SELECT depth, rank, tested, accepted FROM node WHERE turn_id = ? ORDER BY depth, rank",
      {turn_id}, [&](const results::Row& row) {
        nodes.push_back({static_cast<int32_t>(row.integer(0)), static_cast<int32_t>(row.integer(1)),
                         row.integer(2), row.integer(3)});
        return true;
      });
  return nodes;
}

std::vector<results::DivergenceRecord> read_divergences(const results::ResultStore& store,
                                                        int64_t turn_id) {
  std::vector<results::DivergenceRecord> divergences;
  store.query(
      "SELECT idx, expected, found, gap, spacing FROM divergence WHERE turn_id = ? ORDER BY idx",
      {turn_id}, [&](const results::Row& row) {
        results::DivergenceRecord d;
        d.index = static_cast<int32_t>(row.integer(0));
        d.expected = static_cast<int32_t>(row.integer(1));
        d.found = static_cast<int32_t>(row.integer(2));
        if (!row.is_null(3)) d.gap = row.number(3);
        d.spacing = row.number(4);
        divergences.push_back(d);
        return true;
      });
  return divergences;
}

// What the machine did meanwhile.
void read_machine(const results::ResultStore& store, ShownGeneration& g) {
  const auto optional = [](const results::Row& row, int column) {
    return row.is_null(column) ? std::nullopt : std::optional(row.number(column));
  };
  store.query(
      "SELECT device_mhz, available_ns, own_ns, others_ns, steal_ns, preempted FROM clock WHERE "
      "generation_id = ?",
      {g.id}, [&](const results::Row& row) {
        g.clock = {optional(row, 0), row.integer(1), row.integer(2),
                   row.integer(3),   row.integer(4), row.integer(5)};
        return false;
      });
  store.query(
      "SELECT temperature_c, power_w, energy_mj, slowed_by, prefill_ns, draft_prefill_ns, "
      "draft_ns, verify_ns, commit_ns, graph_misses FROM gpu WHERE generation_id = ?",
      {g.id}, [&](const results::Row& row) {
        results::GpuRecord& gpu = g.gpu.emplace();
        gpu.temperature_c = optional(row, 0), gpu.power_w = optional(row, 1);
        if (!row.is_null(2)) gpu.energy_mj = row.integer(2);
        gpu.slowed_by = row.text(3);
        if (!row.is_null(4))
          gpu.busy = {row.integer(4), row.integer(5), row.integer(6),
                      row.integer(7), row.integer(8), row.integer(9)};
        return false;
      });
}

std::string newest_runs(const results::ResultStore& store) {
  std::string text;
  store.query("SELECT id, label, suite FROM run ORDER BY id DESC LIMIT 8", {},
              [&](const results::Row& row) {
                text += fmt::format("{}run:{} ({})", text.empty() ? "" : ", ", row.integer(0),
                                    row.text(1).empty() ? row.text(2) : row.text(1));
                return true;
              });
  return text.empty() ? "the database holds no run yet: evalrun run quick" : "newest runs: " + text;
}

}  // namespace

int64_t parse_id(const std::string& digits) {
  int64_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw base::usage_error(fmt::format("'{}' is not a number of a row", digits));
  return id;
}

ShownGeneration read_generation(const results::ResultStore& store, int64_t id) {
  ShownGeneration g;
  store.query(
      "SELECT g.id, g.run_id, g.arm_id, g.prompt_id, a.label, p.task, p.name, g.status, g.fault,"
      " g.repeat, g.sample, g.block, g.slot, g.total_ns, g.asked"
      " FROM generation g JOIN arm a ON a.id = g.arm_id JOIN prompt p ON p.id = g.prompt_id"
      " WHERE g.id = ?",
      {id}, [&](const results::Row& row) {
        g.id = row.integer(0);
        g.run_id = row.integer(1);
        g.arm_id = row.integer(2);
        g.prompt_id = row.integer(3);
        g.arm_label = row.text(4);
        g.task = row.text(5);
        g.prompt = row.text(6);
        g.status = row.text(7);
        g.fault = row.text(8);
        g.repeat = row.integer(9);
        g.sample = row.integer(10);
        g.block = row.integer(11);
        g.slot = row.integer(12);
        g.total_ns = row.integer(13);
        if (!row.is_null(14)) g.asked = row.integer(14);
        return false;
      });
  if (g.id == 0)
    throw base::usage_error(fmt::format("{} has no generation {}", store.path(), id),
                            "a run is named run:N; " + newest_runs(store));
  std::vector<int64_t> turn_ids;
  store.query(
      "SELECT id, n_prompt_tokens, tokens, text, stop, prefill_ns, draft_prefill_ns, decode_ns"
      " FROM turn WHERE generation_id = ? ORDER BY idx",
      {id}, [&](const results::Row& row) {
        ShownTurn turn;
        turn_ids.push_back(row.integer(0));
        turn.n_prompt_tokens = row.integer(1);
        turn.tokens = unpack_tokens(row.blob(2));
        turn.text = row.text(3);
        turn.stop = row.text(4);
        turn.prefill_ns = row.integer(5);
        turn.draft_prefill_ns = row.integer(6);
        turn.decode_ns = row.integer(7);
        g.turns.push_back(std::move(turn));
        return true;
      });
  for (size_t i = 0; i < turn_ids.size(); ++i) {
    g.turns[i].steps = store.steps(turn_ids[i]);
    g.turns[i].nodes = read_nodes(store, turn_ids[i]);
    g.turns[i].divergences = read_divergences(store, turn_ids[i]);
  }
  store.query("SELECT degenerate FROM v_generation_all WHERE run_id = ? AND generation_id = ?",
              {g.run_id, id}, [&](const results::Row& row) {
                g.degenerate = row.integer(0) != 0;
                return false;
              });
  read_machine(store, g);
  store.query(
      "SELECT evaluator, version, value, extracted, status, detail, suspicious, facts FROM score "
      "WHERE generation_id = ? ORDER BY evaluator, version",
      {id}, [&](const results::Row& row) {
        results::ScoreRecord s;
        s.evaluator = row.text(0);
        s.version = row.text(1);
        if (!row.is_null(2)) s.value = row.number(2);
        s.extracted = row.text(3);
        s.status = row.text(4);
        s.detail = row.text(5);
        s.suspicious = row.integer(6) != 0;
        s.facts = row.text(7);
        g.scores.push_back(std::move(s));
        return true;
      });
  return g;
}

ShownRun read_run(const results::ResultStore& store, int64_t id) {
  ShownRun run;
  store.query(
      "SELECT id, key, label, suite, started, coalesce(finished, ''), commit_id, version, command"
      " FROM run WHERE id = ?",
      {id}, [&](const results::Row& row) {
        run.id = row.integer(0);
        run.key = row.text(1);
        run.label = row.text(2);
        run.suite = row.text(3);
        run.started = row.text(4);
        run.finished = row.text(5);
        run.commit = row.text(6);
        run.version = row.text(7);
        run.command = row.text(8);
        return false;
      });
  if (run.id == 0)
    throw base::usage_error(fmt::format("{} has no run {}", store.path(), id), newest_runs(store));
  store.query("SELECT name, value FROM environment WHERE run_id = ? ORDER BY name", {id},
              [&](const results::Row& row) {
                run.environment[row.text(0)] = row.text(1);
                return true;
              });
  store.query(
      "SELECT a.id, a.label, a.role, a.peak_bytes, count(g.id), coalesce(sum(g.status <> 'ok'), 0),"
      " a.method FROM arm a LEFT JOIN generation g ON g.arm_id = a.id WHERE a.run_id = ?"
      " GROUP BY a.id ORDER BY a.id",
      {id}, [&](const results::Row& row) {
        ShownArm arm;
        arm.id = row.integer(0);
        arm.label = row.text(1);
        arm.role = row.text(2);
        arm.peak_bytes = row.integer(3);
        arm.generations = row.integer(4);
        arm.failed = row.integer(5);
        arm.drafts = arm.role == "method" && row.text(6) != reports::kTunedPlain;
        run.arms.push_back(std::move(arm));
        return true;
      });
  const reports::RunData data = reports::load_run(store, id, reports::Faults::kInclude);
  for (ShownArm& arm : run.arms) {
    reports::Counters sum;
    for (const auto& [cell, sample] : reports::cells_of(data, arm.id)) sum.add(*sample);
    arm.tok_s = sum.tok_s();
    if (sum.steps == 0) continue;
    arm.tau = sum.emitted / sum.steps;
    if (arm.drafts) arm.no_draft = sum.undrafted / sum.steps;
  }
  store.query("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM generation WHERE run_id = ?",
              {id}, [&](const results::Row& row) {
                run.first_generation = row.integer(0);
                run.last_generation = row.integer(1);
                return false;
              });
  return run;
}

nlohmann::ordered_json run_json(const ShownRun& run) {
  using Json = nlohmann::ordered_json;
  Json arms = Json::array();
  for (const ShownArm& arm : run.arms)
    arms.push_back({{"label", arm.label},
                    {"role", arm.role},
                    {"generations", arm.generations},
                    {"failed", arm.failed},
                    {"tau", arm.tau},
                    {"tok_s", arm.tok_s},
                    {"no_draft", arm.no_draft ? Json(*arm.no_draft) : Json()},
                    {"peak_bytes", arm.peak_bytes}});
  return {{"run", run.id},
          {"key", run.key},
          {"label", run.label},
          {"suite", run.suite},
          {"started", run.started},
          {"finished", run.finished.empty() ? Json() : Json(run.finished)},
          {"commit", run.commit},
          {"version", run.version},
          {"command", run.command},
          {"environment", run.environment},
          {"arms", arms},
          {"first_generation", run.first_generation},
          {"last_generation", run.last_generation}};
}

std::string run_text(const ShownRun& run) {
  std::string out = fmt::format("run {}: {} (suite {}), {}{}\nbuild {} {}, key {}\ncommand: {}\n\n",
                                run.id, run.label, run.suite, run.started,
                                run.finished.empty() ? ", not finished" : " to " + run.finished,
                                run.version, run.commit, run.key, run.command);
  std::vector<std::vector<std::string>> rows;
  for (const ShownArm& arm : run.arms)
    rows.push_back({arm.label, arm.role, std::to_string(arm.generations),
                    std::to_string(arm.failed), fmt::format("{:.3f}", arm.tau),
                    fmt::format("{:.1f}", arm.tok_s),
                    arm.no_draft ? fmt::format("{:.1f} %", 100 * *arm.no_draft) : "-",
                    human_bytes(static_cast<double>(arm.peak_bytes))});
  out += aligned_table(
      {"arm", "role", "generations", "failed", "tau", "tok/s", "no draft", "peak memory"}, rows);
  rows.clear();
  for (const auto& [name, value] : run.environment) rows.push_back({name, value});
  out += "\n\n" + aligned_table({"environment", ""}, rows);
  return out + fmt::format(
                   "\n\none generation: evalrun show N with N from {} to {}; the table: "
                   "evalrun report run:{}",
                   run.first_generation, run.last_generation, run.id);
}

int64_t find_counterpart(const results::ResultStore& store, const ShownGeneration& generation,
                         const std::string& arm) {
  std::string lower = arm;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool plain = lower == "ar";
  std::optional<int64_t> found;
  std::vector<std::string> labels;
  store.query(
      "SELECT g.id, a.label, a.method, a.id = (SELECT reference_id FROM v_reference WHERE "
      "arm_id = ?) FROM generation g JOIN arm a ON a.id = g.arm_id"
      " WHERE g.run_id = ? AND g.prompt_id = ? AND g.repeat = ? AND g.sample = ? ORDER BY a.id",
      {generation.arm_id, generation.run_id, generation.prompt_id, generation.repeat,
       generation.sample},
      [&](const results::Row& row) {
        labels.push_back(row.text(1));
        const bool match = plain ? row.integer(3) != 0 : row.text(1) == arm || row.text(2) == arm;
        if (match && !found) found = row.integer(0);
        return true;
      });
  if (!found)
    throw base::usage_error(
        fmt::format("run {} has no generation of arm '{}' for this prompt", generation.run_id, arm),
        base::suggest(arm, labels));
  return *found;
}

}  // namespace evalrun::cli
