// What `show` reads back from the result database.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "results/records.h"
#include "results/store.h"

namespace evalrun::cli {

struct ShownTurn {
  int64_t n_prompt_tokens = 0;
  std::vector<int32_t> tokens;
  std::string text, stop;
  int64_t prefill_ns = 0, draft_prefill_ns = 0, decode_ns = 0;
  std::vector<results::StepRecord> steps;
  std::vector<results::NodeCount> nodes;               // none in runs of old versions
  std::vector<results::DivergenceRecord> divergences;  // of a replay
};

struct ShownGeneration {
  int64_t id = 0, run_id = 0, arm_id = 0, prompt_id = 0;
  std::string arm_label, task, prompt, status, fault;
  int64_t repeat = 0, sample = 0, block = 0, slot = 0, total_ns = 0;
  std::vector<ShownTurn> turns;
  std::vector<results::ScoreRecord> scores;
  std::optional<int64_t> asked;               // places at which a replayed method had a say
  bool degenerate = false;                    // the answer runs in a loop
  std::optional<results::ClockRecord> clock;  // absent in runs of old versions
  std::optional<results::GpuRecord> gpu;
};

struct ShownArm {
  int64_t id = 0;
  std::string label, role;
  int64_t generations = 0, failed = 0, peak_bytes = 0;
  double tau = 0, tok_s = 0;       // pooled over everything measured; 0 when nothing was
  bool drafts = false;             // not plain decoding
  std::optional<double> no_draft;  // share of steps without a draft; absent for plain decoding
};

struct ShownRun {
  int64_t id = 0;
  std::string key, label, suite, started, finished, commit, version, command;
  std::map<std::string, std::string> environment;
  std::vector<ShownArm> arms;
  int64_t first_generation = 0, last_generation = 0;
};

// Digits only, as checked by the caller; throws usage_error when they do not fit 64 bits.
int64_t parse_id(const std::string& digits);

// Throw usage_error when there is no such row.
ShownGeneration read_generation(const results::ResultStore& store, int64_t id);
ShownRun read_run(const results::ResultStore& store, int64_t id);
nlohmann::ordered_json run_json(const ShownRun& run);
std::string run_text(const ShownRun& run);  // for people

// The generation of another arm for the same prompt, repeat and sample. `arm`: a label, a method
// name, or "AR" in any case for the plain decoding of the same model (RunData::reference).
int64_t find_counterpart(const results::ResultStore& store, const ShownGeneration& generation,
                         const std::string& arm);

}  // namespace evalrun::cli
