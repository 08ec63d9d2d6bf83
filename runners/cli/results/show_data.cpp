#include "runners/cli/results/show_data.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "reports/data/pairing.h"
#include "reports/data/run_data.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

std::string known_runs(const results::ResultStore& store) {
  std::string text;
  for (const results::RunRow& run : results::newest_runs(store, 8))
    text += fmt::format("{}run:{} ({})", text.empty() ? "" : ", ", run.id,
                        run.label.empty() ? run.suite : run.label);
  return text.empty() ? "the database holds no run yet: evalrun run quick" : "newest runs: " + text;
}

// What steps of a batch were like; of all its members.
struct StepMeans {
  double members = 0, rows = 0, ms = 0, tok_s = 0;
};

StepMeans means_of(const results::BatchStepSums& sums) {
  if (sums.steps == 0) return {};
  const auto n = static_cast<double>(sums.steps), ns = static_cast<double>(sums.ns);
  return {.members = static_cast<double>(sums.members) / n,
          .rows = static_cast<double>(sums.rows) / n,
          .ms = ns / n / 1e6,
          .tok_s = sums.ns > 0 ? static_cast<double>(sums.emitted) / ns * 1e9 : 0};
}

nlohmann::ordered_json means_json(const results::BatchStepSums& sums) {
  const StepMeans means = means_of(sums);
  return {{"steps", sums.steps},
          {"members_per_step", means.members},
          {"rows_per_step", means.rows},
          {"step_ms", means.ms},
          {"tok_s", means.tok_s}};
}

// Of the steps that a turn took part in.
results::BatchStepSums sums_of(const results::BatchTurnRecord& batch) {
  results::BatchStepSums sums;
  for (const results::BatchStepRecord& step : batch.steps) {
    ++sums.steps;
    sums.members += step.members, sums.rows += step.rows;
    sums.emitted += step.emitted, sums.ns += step.ns;
  }
  return sums;
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
  std::optional<ShownGeneration> found = results::find_generation(store, id);
  if (!found)
    throw base::usage_error(fmt::format("{} has no generation {}", store.path(), id),
                            "a run is named run:N; " + known_runs(store));
  return std::move(*found);
}

ShownRun read_run(const results::ResultStore& store, int64_t id) {
  const std::optional<results::RunRow> row = results::find_run_row(store, id);
  if (!row)
    throw base::usage_error(fmt::format("{} has no run {}", store.path(), id), known_runs(store));
  ShownRun run;
  static_cast<results::RunRow&>(run) = *row;
  run.environment = results::environment(store, id);
  auto counts = results::count_by_arm(store, id);
  const auto steps = results::batch_step_sums(store, id);
  const reports::RunData data = reports::load_run(store, id, reports::Faults::kInclude);
  for (const results::ArmRow& stored : results::arms(store, id)) {
    const results::ArmRecord& record = stored.record;
    ShownArm& arm = run.arms.emplace_back();
    arm.label = record.label;
    arm.role = record.role;
    arm.batch = record.batch;
    if (const auto mode = record.settings.find("batch_mode"); mode != record.settings.end())
      arm.batch_mode = mode->second;
    if (const auto sums = steps.find(stored.id); sums != steps.end()) arm.together = sums->second;
    arm.peak_bytes = record.peak_bytes;
    arm.generations = counts[stored.id].stored;
    arm.failed = counts[stored.id].failed;
    reports::Counters sum;
    for (const auto& [cell, sample] : reports::cells_of(data, stored.id)) sum.add(*sample);
    arm.tok_s = sum.tok_s();
    if (sum.steps == 0) continue;
    arm.tau = sum.emitted / sum.steps;
    const bool drafts = record.role == "method" && record.method != reports::kTunedPlain;
    if (drafts) arm.no_draft = sum.undrafted / sum.steps;
  }
  const results::IdRange generations = results::generation_ids(store, id);
  run.first_generation = generations.first;
  run.last_generation = generations.last;
  return run;
}

nlohmann::ordered_json run_json(const ShownRun& run) {
  using Json = nlohmann::ordered_json;
  Json arms = Json::array();
  for (const ShownArm& arm : run.arms)
    arms.push_back({{"label", arm.label},
                    {"role", arm.role},
                    {"batch", arm.batch},
                    {"batch_mode", arm.batch_mode},
                    {"batch_steps", arm.together ? means_json(*arm.together) : Json()},
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
                    base::format_bytes(arm.peak_bytes)});
  out += aligned_table(
      {"arm", "role", "generations", "failed", "tau", "tok/s", "no draft", "peak memory"}, rows);
  rows.clear();
  for (const ShownArm& arm : run.arms) {
    if (!arm.together) continue;
    const StepMeans means = means_of(*arm.together);
    rows.push_back({arm.label, std::to_string(arm.batch), arm.batch_mode,
                    std::to_string(arm.together->steps), fmt::format("{:.2f}", means.members),
                    fmt::format("{:.2f}", means.rows), fmt::format("{:.3f}", means.ms),
                    fmt::format("{:.1f}", means.tok_s)});
  }
  if (!rows.empty())
    out += "\n\nsteps of batches, fillers included\n" +
           aligned_table({"arm", "batch", "mode", "steps", "members", "rows", "step ms", "tok/s"},
                         rows);
  rows.clear();
  for (const auto& [name, value] : run.environment) rows.push_back({name, value});
  out += "\n\n" + aligned_table({"environment", ""}, rows);
  return out + fmt::format(
                   "\n\none generation: evalrun show N with N from {} to {}; the table: "
                   "evalrun report run:{}",
                   run.first_generation, run.last_generation, run.id);
}

nlohmann::ordered_json batch_json(const ShownTurn& turn) {
  using Json = nlohmann::ordered_json;
  if (!turn.batch) return {};
  Json steps = Json::array();
  for (const results::BatchStepRecord& s : turn.batch->steps)
    steps.push_back({{"number", s.number},
                     {"members", s.members},
                     {"rows", s.rows},
                     {"emitted", s.emitted},
                     {"ns", s.ns},
                     {"gap_ns", s.gap_ns}});
  return {{"call", turn.batch_call},
          {"slot", turn.batch->slot},
          {"first_token_ns", turn.batch->first_token_ns},
          {"wall_ns", turn.batch->wall_ns},
          {"summary", means_json(sums_of(*turn.batch))},
          {"steps", steps}};
}

std::string batch_text(const ShownTurn& turn) {
  if (!turn.batch) return "";
  const results::BatchTurnRecord& b = *turn.batch;
  const results::BatchStepSums sums = sums_of(b);
  const StepMeans means = means_of(sums);
  return fmt::format(
      "in batch call {}, slot {}: first token after {}, then {} to the last; {} steps of {:.2f} "
      "members and {:.2f} rows on average, {:.3f} ms each, {:.1f} tok/s of all members",
      turn.batch_call, b.slot, base::format_duration(1e-9 * static_cast<double>(b.first_token_ns)),
      base::format_duration(1e-9 * static_cast<double>(b.wall_ns)), sums.steps, means.members,
      means.rows, means.ms, means.tok_s);
}

int64_t find_counterpart(const results::ResultStore& store, const ShownGeneration& generation,
                         const std::string& arm) {
  std::string lower = arm;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool plain = lower == "ar";
  std::optional<int64_t> found;
  std::vector<std::string> labels;
  for (const results::Counterpart& c : results::counterparts(store, generation)) {
    labels.push_back(c.arm_label);
    const bool match = plain ? c.reference : c.arm_label == arm || c.method == arm;
    if (match && !found) found = c.id;
  }
  if (!found)
    throw base::usage_error(
        fmt::format("run {} has no generation of arm '{}' for this prompt", generation.run_id, arm),
        base::suggest(arm, labels));
  return *found;
}

}  // namespace evalrun::cli
