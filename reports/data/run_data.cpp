#include "reports/data/run_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/data/generations.h"
#include "results/queries.h"

namespace evalrun::reports {

using results::Row;

const ArmInfo* RunData::baseline() const {
  for (const ArmInfo& a : arms)
    if (a.role == "baseline") return &a;
  return nullptr;
}

const ArmInfo* RunData::reference(const ArmInfo& arm) const {
  const ArmInfo* base = baseline();
  if (arm.method != kTunedPlain && base != nullptr && base->model_hash == arm.model_hash)
    return base;
  for (const ArmInfo& a : arms)
    if (arm.method == kTunedPlain ? a.id == arm.id
                                  : a.method == kTunedPlain && a.model_hash == arm.model_hash)
      return &a;
  return base;
}

namespace {

// Labels of older runs hold the whole path of a file, newer ones its end.
bool same_but_for_folders(std::string_view a, std::string_view b) {
  const std::vector<std::string> x = base::split(a, ','), y = base::split(b, ',');
  return std::equal(
      x.begin(), x.end(), y.begin(), y.end(), [](const std::string& one, const std::string& other) {
        if (one == other) return true;
        const auto& [file, path] =
            std::minmax(one, other, [](auto& s, auto& t) { return s.size() < t.size(); });
        const size_t equals = file.find('=');
        return equals != file.npos && path.starts_with(file.substr(0, equals + 1)) &&
               path.ends_with("/" + file.substr(equals + 1));
      });
}

}  // namespace

const ArmInfo* arm_of(const std::vector<ArmInfo>& arms, std::string_view label) {
  const ArmInfo* found = nullptr;
  int n = 0;
  for (const ArmInfo& a : arms) {
    if (a.label == label) return &a;
    if (!same_but_for_folders(a.label, label)) continue;
    found = &a;
    ++n;
  }
  return n == 1 ? found : nullptr;
}

const ArmInfo* RunData::arm(std::string_view label) const { return arm_of(arms, label); }

namespace {

// What decides a certificate's key.
results::ArmRecord record_of(const ArmInfo& a) {
  results::ArmRecord r;
  r.method = a.method;
  r.params = a.params;
  r.method_version = a.method_version;
  r.model_hash = a.model_hash;
  r.draft_hash = a.draft_hash;
  r.dtype = a.dtype;
  r.isa = a.isa;
  r.device = a.device;
  r.kv_cache = a.kv_cache;
  const nlohmann::json settings = nlohmann::json::parse(a.settings, nullptr, false);
  if (settings.is_object())
    for (const auto& [name, value] : settings.items())
      if (value.is_string()) r.settings[name] = value.get<std::string>();
  return r;
}

// "" where the arm has no such setting.
std::string setting(const ArmInfo& arm, const char* name) {
  const nlohmann::json settings = nlohmann::json::parse(arm.settings, nullptr, false);
  if (!settings.is_object() || !settings.contains(name) || !settings[name].is_string()) return "";
  return settings[name].get<std::string>();
}

// What an arm and its reference must share. The planner gives all arms the same; a file may say
// otherwise.
void check_engine_mode(const ArmInfo& arm, const ArmInfo& reference) {
  const auto check = [&](const char* what, const std::string& own, const std::string& other) {
    if (own == other) return;
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("{} was measured with {} '{}', {} with '{}'", arm.label, what,
                                  own, reference.label, other),
                      "a speedup compares arms of one engine mode: measure both anew in one run");
  };
  check("dtype", arm.dtype, reference.dtype);
  check("isa", arm.isa, reference.isa);
  check("device", arm.device, reference.device);
  check("threads", std::to_string(arm.threads), std::to_string(reference.threads));
  check("batch", std::to_string(arm.batch), std::to_string(reference.batch));
  check("KV cache", arm.kv_cache ? "on" : "off", reference.kv_cache ? "on" : "off");
  for (const char* name : {"kv_dtype", "bits", "replay", "sampler"})
    check(name, setting(arm, name), setting(reference, name));
}

}  // namespace

RunData load_run(const results::ResultStore& store, int64_t run_id, Faults faults) {
  RunData data;
  store.query(
      "SELECT id, key, label, suite, commit_id, version, started, finished FROM run WHERE id = ?",
      {run_id}, [&](const Row& r) {
        data.run = {.id = r.integer(0),
                    .key = r.text(1),
                    .label = r.text(2),
                    .suite = r.text(3),
                    .commit = r.text(4),
                    .version = r.text(5),
                    .started = r.text(6),
                    .finished = r.text(7),
                    .environment = {}};
        return false;
      });
  if (data.run.id == 0)
    throw base::data_error(store.path(), "", fmt::format("has no run {}", run_id),
                           "evalrun list runs shows what there is");
  store.query("SELECT name, value FROM environment WHERE run_id = ?", {run_id}, [&](const Row& r) {
    data.run.environment[r.text(0)] = r.text(1);
    return true;
  });
  store.query(
      "SELECT id, label, method, params, method_version, role, lossless, model, model_hash, draft, "
      "draft_hash, dtype, isa, device, settings, threads, batch, top_k, max_new, weight_bytes, "
      "extra_parameter_bytes, kv_bytes, peak_bytes, temperature, top_p, kv_cache, ignore_eos "
      "FROM arm WHERE run_id = ? ORDER BY id",
      {run_id}, [&](const Row& r) {
        ArmInfo a;
        a.id = r.integer(0);
        std::string* texts[] = {&a.label,  &a.method,     &a.params, &a.method_version,
                                &a.role,   &a.lossless,   &a.model,  &a.model_hash,
                                &a.draft,  &a.draft_hash, &a.dtype,  &a.isa,
                                &a.device, &a.settings};
        int column = 1;
        for (std::string* t : texts) *t = r.text(column++);
        int64_t* numbers[] = {&a.threads,  &a.batch,        &a.top_k,
                              &a.max_new,  &a.weight_bytes, &a.extra_parameter_bytes,
                              &a.kv_bytes, &a.peak_bytes};
        for (int64_t* n : numbers) *n = r.integer(column++);
        a.temperature = r.number(column++);
        a.top_p = r.number(column++);
        a.kv_cache = r.integer(column++) != 0;
        a.ignore_eos = r.integer(column++) != 0;
        data.arms.push_back(std::move(a));
        return true;
      });
  for (const ArmInfo& a : data.arms)
    if (const ArmInfo* reference = data.reference(a)) check_engine_mode(a, *reference);
  for (ArmInfo& a : data.arms)
    a.certificate =
        results::find_certificate(store, results::certificate_key(record_of(a), data.run.commit));
  store.query(fmt::format("SELECT id, key, task, name, category, language, {} FROM prompt WHERE "
                          "run_id = ? ORDER BY id",
                          results::has_groups(store) ? "group_name" : "''"),
              {run_id}, [&](const Row& r) {
                data.prompts.push_back({r.integer(0), r.text(1), r.text(2), r.text(3), r.text(4),
                                        r.text(5), r.text(6)});
                return true;
              });
  read_generations(store, faults, data);
  return data;
}

std::string varying_steps(const ArmInfo& arm) { return setting(arm, "steps"); }

bool promises_tokens(const ArmInfo& arm) {
  return !arm.lossy() && (arm.greedy() || setting(arm, "sampled") == "same tokens");
}

bool replayed(const ArmInfo& arm) { return !setting(arm, "replay").empty(); }

std::string run_title(const RunInfo& run) {
  return fmt::format("run {}{}", run.id, run.label.empty() ? "" : fmt::format(" '{}'", run.label));
}

std::string machine_name(const RunInfo& run) {
  for (const char* name : {"gpu", "cpu"})
    if (const auto it = run.environment.find(name); it != run.environment.end()) return it->second;
  return "";
}

std::vector<OtherMachine> other_machines(const RunInfo& first, const RunInfo& second) {
  std::vector<OtherMachine> others;
  for (const auto& [name, what] : {std::pair{"cpu", "processor"}, std::pair{"gpu", "GPU"}}) {
    const auto x = first.environment.find(name), y = second.environment.find(name);
    if (x != first.environment.end() && y != second.environment.end() && x->second != y->second)
      others.push_back({what, x->second, y->second});
  }
  return others;
}

std::map<std::string, std::string> engine_mode(const ArmInfo& a) {
  return {{"method version", a.method_version},
          {"parameters", a.params},  // labels leave defaults out, and defaults may change
          {"model", a.model_hash},
          {"draft model", a.draft_hash},
          {"dtype", a.dtype},
          {"isa", a.isa},
          {"device", a.device},
          {"threads", fmt::format("{}", a.threads)},
          {"batch", fmt::format("{}", a.batch)},
          {"KV cache", a.kv_cache ? "on" : "off"},
          {"temperature", fmt::format("{}", a.temperature)},
          {"top-k", fmt::format("{}", a.top_k)},
          {"top-p", fmt::format("{}", a.top_p)},
          {"max_new", fmt::format("{}", a.max_new)},
          {"ignore-eos", a.ignore_eos ? "on" : "off"},
          {"settings", a.settings}};
}

}  // namespace evalrun::reports
