#include "results/merge/merge_sources.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "results/read_rows.h"

namespace evalrun::results {
namespace {

int64_t schema_version_of(const ResultStore& store) {
  return one<int64_t>(store,
                      "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'schema_version'")
      .value_or(0);
}

std::string real_path(const std::string& path) {
  std::error_code ignored;
  const auto canonical = std::filesystem::weakly_canonical(path, ignored);
  return ignored ? path : canonical.string();
}

// Runs of a file that can be merged. Of several plans none: the caller names one.
std::vector<MergeSource> runs_of(const MergeInput& input) {
  std::error_code ignored;
  if (!std::filesystem::exists(input.path, ignored))
    throw base::data_error(input.path, "", "there is no such result database",
                           "name the files of `evalrun run --shard I/N --db FILE`");
  const ResultStore store(input.path, ResultStore::Mode::kReadOnly);
  if (const int64_t version = schema_version_of(store); version != kSchemaVersion)
    throw base::data_error(
        input.path, "schema version", fmt::format("is {}, not {}", version, kSchemaVersion),
        "all parts are measured by one build of evalrun; a file of before has no plan of its run");
  const std::vector<int64_t> ids = all<int64_t>(store, "SELECT id FROM run ORDER BY id");
  if (ids.empty())
    throw base::data_error(input.path, "", "holds no run",
                           "its measurement ended before it began: run that shard again");
  std::vector<MergeSource> sources;
  for (const int64_t id : ids) {
    if (input.run_id && *input.run_id != id) continue;
    MergeSource source{.path = input.path, .only_run = ids.size() == 1};
    source.run = find_run_row(store, id).value();
    const auto plan = find_plan(store, id);
    if (!plan) {
      if (!input.run_id && ids.size() > 1) continue;  // an older run beside those to merge
      throw base::data_error(input.path, fmt::format("run {}", id),
                             "has no plan: it was measured before schema version 13, or ended "
                             "before it began",
                             "measure it with this build, or leave it out");
    }
    source.plan = *plan;
    source.shards = shards(store, id);
    source.generations = count_generations(store, id).stored;
    sources.push_back(std::move(source));
  }
  for (const MergeSource& source : sources)
    if (source.plan.key != sources.front().plan.key)
      throw base::usage_error(
          fmt::format("{}: holds runs of several plans: run {} '{}' and run {} '{}'", input.path,
                      sources.front().run.id, sources.front().run.label, source.run.id,
                      source.run.label),
          fmt::format("name one of them: {}:{}", input.path, source.run.id));
  if (sources.empty())
    throw base::data_error(input.path, "", "holds no run with a plan",
                           "its runs were measured before schema version 13");
  return sources;
}

// The target is taken for an input, and replaced: nothing else may be in it.
void check_target(const std::string& target) {
  const ResultStore store(target, ResultStore::Mode::kReadOnly);
  const std::vector<std::string> baselines_of =
      all<std::string>(store, "SELECT name FROM baseline ORDER BY name");
  const int64_t runs = one<int64_t>(store, "SELECT count(*) FROM run").value_or(0);
  if (runs == 1 && baselines_of.empty()) return;
  throw base::usage_error(
      fmt::format("{}: exists, and holds {}", target,
                  runs != 1 ? fmt::format("{} runs", runs)
                            : fmt::format("the baseline '{}'", baselines_of.front())),
      "merge into a file of its own: evalrun merge NEW.db ...");
}

std::map<std::string, std::string> facts_of(const MergeSource& source) {
  const ResultStore store(source.path, ResultStore::Mode::kReadOnly);
  return environment(store, source.run.id);
}

// The first field in which two suites differ, "" for none.
std::string suite_difference(const std::string& a, const std::string& b) {
  const auto x = nlohmann::json::parse(a, nullptr, false),
             y = nlohmann::json::parse(b, nullptr, false);
  if (!x.is_object() || !y.is_object()) return a == b ? "" : "the suite";
  for (const auto& [name, value] : x.items())
    if (!y.contains(name) || y[name] != value)
      return fmt::format("\"{}\" of the suite is {} and {}", name, value.dump(),
                         y.contains(name) ? y[name].dump() : "not there");
  for (const auto& [name, value] : y.items())
    if (!x.contains(name))
      return fmt::format("\"{}\" of the suite is not there and {}", name, value.dump());
  return "";
}

std::string rows_difference(const MergeSource& a, const MergeSource& b, const char* table,
                            const char* sql) {
  const auto rows = [&](const MergeSource& s) {
    const ResultStore store(s.path, ResultStore::Mode::kReadOnly);
    const auto found = all<std::string>(store, sql, {s.run.id});
    return std::set<std::string>(found.begin(), found.end());
  };
  const std::set<std::string> x = rows(a), y = rows(b);
  for (const std::string& name : x)
    if (!y.contains(name)) return fmt::format("{} '{}' is in the first alone", table, name);
  for (const std::string& name : y)
    if (!x.contains(name)) return fmt::format("{} '{}' is in the second alone", table, name);
  return "";
}

// In the order in which a user would look.
std::pair<std::string, std::string> plan_difference(const MergeSource& a, const MergeSource& b) {
  const auto x = facts_of(a), y = facts_of(b);
  const auto fact = [](const std::map<std::string, std::string>& facts, const char* name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string("unknown") : found->second;
  };
  const auto differ = [&](const char* name) { return fact(x, name) != fact(y, name); };
  if (a.run.commit != b.run.commit || a.run.version != b.run.version)
    return {fmt::format("their builds are {} ({}) and {} ({})", a.run.version, a.run.commit,
                        b.run.version, b.run.commit),
            "measure all shards by one build of evalrun"};
  for (const char* name : {"build", "build_type", "compiler", "sanitizers"})
    if (differ(name))
      return {
          fmt::format("their builds differ: {} is {} and {}", name, fact(x, name), fact(y, name)),
          "measure all shards by one build of evalrun"};
  if (differ("model_hash"))
    return {fmt::format("their models differ: SHA-256 {:.16} ({}) and {:.16} ({})",
                        fact(x, "model_hash"), fact(x, "model_path"), fact(y, "model_hash"),
                        fact(y, "model_path")),
            "give all machines the same file with -m"};
  if (const std::string why = suite_difference(a.run.suite_json, b.run.suite_json); !why.empty())
    return {why, "measure all shards with the same suite and options"};
  if (a.run.label != b.run.label)
    return {fmt::format("their labels are '{}' and '{}'", a.run.label, b.run.label),
            "give all shards the same --label, or none"};
  std::string why =
      rows_difference(a, b, "arm", "SELECT label || ' ' || settings FROM arm WHERE run_id = ?");
  if (why.empty())
    why = rows_difference(a, b, "prompt",
                          "SELECT task || ' ' || name || ' ' || key FROM prompt WHERE run_id = ?");
  if (!why.empty())
    return {why, "give all machines the same data, files of weights and EVALRUN_* variables"};
  return {"their plans differ: the nonce, the formats or the versions of methods or evaluators",
          "measure all shards by one build, with the same options and --nonce"};
}

std::string name_of(const MergeSource& source) {
  return source.only_run ? source.path : fmt::format("{}:{}", source.path, source.run.id);
}

}  // namespace

std::vector<MergeSource> merge_sources(const std::string& target,
                                       const std::vector<MergeInput>& inputs) {
  std::vector<MergeInput> with_target = inputs;
  std::error_code ignored;
  if (std::filesystem::exists(target, ignored)) {
    check_target(target);
    with_target.insert(with_target.begin(), {target});
  }
  std::vector<MergeSource> sources;
  std::set<std::pair<std::string, int64_t>> seen;
  for (const MergeInput& input : with_target)
    for (MergeSource& source : runs_of(input))
      if (const std::string path = real_path(source.path);
          seen.emplace(path, source.run.id).second) {
        source.is_target = path == real_path(target);
        sources.push_back(std::move(source));
      }
  for (const MergeSource& source : sources)
    if (source.plan.key != sources.front().plan.key) {
      const auto [why, hint] = plan_difference(sources.front(), source);
      throw base::Error(base::ExitCode::kNoBaseline,
                        fmt::format("{} and {} are not parts of one run: {}",
                                    name_of(sources.front()), name_of(source), why),
                        hint);
    }
  const auto place = [](const MergeSource& s) {
    return std::tie(s.run.started, s.run.command, s.shards, s.run.key, s.path, s.run.id);
  };
  std::sort(sources.begin(), sources.end(),
            [&](const MergeSource& a, const MergeSource& b) { return place(a) < place(b); });
  return sources;
}

}  // namespace evalrun::results
