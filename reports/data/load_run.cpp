// A run read back: its arms, prompts and generations.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "reports/data/generations.h"
#include "reports/data/run_data.h"
#include "results/queries.h"

namespace evalrun::reports {

using results::Row;

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

// What an arm and its reference must share. The planner gives all arms the same; a file may say
// otherwise.
void check_engine_mode(const ArmInfo& arm, const ArmInfo& reference) {
  if (is_server(arm) || is_server(reference)) return;  // what is behind one, nobody knows
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
  for (const char* name : {"kv_dtype", "bits", "replay", "sampler", "batch_mode"})
    check(name, arm_setting(arm, name), arm_setting(reference, name));
}

// As it called its model when the run began.
std::string model_of_server(const ArmInfo& arm, const RunInfo& run) {
  const auto found =
      run.environment.find(fmt::format("endpoint.{}.model", arm_setting(arm, "endpoint")));
  return found == run.environment.end() ? "" : found->second;
}

RunInfo load_info(const results::ResultStore& store, int64_t run_id) {
  const auto row = results::find_run_row(store, run_id);
  if (!row)
    throw base::data_error(store.path(), "", fmt::format("has no run {}", run_id),
                           "evalrun list runs shows what there is");
  RunInfo run;
  run.id = row->id;
  run.key = row->key;
  run.label = row->label;
  run.suite = row->suite;
  run.commit = row->commit;
  run.version = row->version;
  run.started = row->started;
  run.finished = row->finished;
  run.command = row->command;
  run.environment = results::environment(store, run_id);
  if (!run.finished.empty()) return run;
  run.stored = results::count_generations(store, run_id).stored;
  run.planned = results::planned_generations(store, run_id);
  return run;
}

// Times of several machines as those of one clock (clock_scales()). Plain decoding is the first
// baseline arm; other batches and models have their ratios within machines as well.
void put_on_one_clock(RunData& data) {
  std::vector<MachineInfo>& machines = data.run.machines;
  const ArmInfo* baseline = data.baseline();
  if (machines.empty() || baseline == nullptr) return;
  std::unordered_map<int64_t, size_t> machine_of;
  for (const PromptInfo& p : data.prompts) machine_of[p.id] = static_cast<size_t>(p.machine);
  std::vector<PlainTotals> plain(machines.size());
  for (const SampleRow& s : data.samples) {
    if (s.arm_id != baseline->id || !s.fault.empty()) continue;
    PlainTotals& of = plain[machine_of.at(s.prompt_id)];
    of.tokens += s.n_decode, of.ns += s.decode_ns;
  }
  const std::vector<double> scales = clock_scales(plain);
  for (size_t m = 0; m < machines.size(); ++m) machines[m].time_scale = scales[m];
  for (SampleRow& s : data.samples)
    for (double SampleRow::*time :
         {&SampleRow::draft_ns, &SampleRow::verify_ns, &SampleRow::decode_ns,
          &SampleRow::prefill_ns, &SampleRow::draft_prefill_ns, &SampleRow::first_token_ns,
          &SampleRow::fastest_ns})
      s.*time *= scales[machine_of.at(s.prompt_id)];
}

}  // namespace

RunData load_run(const results::ResultStore& store, int64_t run_id, Faults faults,
                 bool step_detail) {
  RunData data;
  data.run = load_info(store, run_id);
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
  for (ArmInfo& a : data.arms)
    if (is_server(a) && a.model.empty()) a.model = model_of_server(a, data.run);
  for (const ArmInfo& a : data.arms)
    if (const ArmInfo* reference = data.reference(a)) check_engine_mode(a, *reference);
  for (ArmInfo& a : data.arms)
    a.certificate =
        results::certificate_beside(store, results::certificate_key(record_of(a), data.run.commit),
                                    {a.temperature, a.top_k, a.top_p, arm_setting(a, "sampler")});
  store.query(fmt::format("SELECT id, key, task, name, category, language, {} FROM prompt WHERE "
                          "run_id = ? ORDER BY id",
                          results::has_groups(store) ? "group_name" : "''"),
              {run_id}, [&](const Row& r) {
                data.prompts.push_back({r.integer(0), r.text(1), r.text(2), r.text(3), r.text(4),
                                        r.text(5), r.text(6)});
                return true;
              });
  read_generations(store, faults, step_detail, data);
  put_on_one_clock(data);
  return data;
}

}  // namespace evalrun::reports
