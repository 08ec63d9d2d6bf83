// What `show` reads back from the result database.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "results/batch_queries.h"
#include "results/generation_queries.h"
#include "results/queries.h"

namespace evalrun::cli {

using ShownTurn = results::StoredTurn;
using ShownGeneration = results::StoredGeneration;

struct ShownArm {
  int64_t batch = 1;
  std::string batch_mode;                          // "" for batch 1
  std::optional<results::BatchStepSums> together;  // absent for batch 1 and where nothing was kept
  std::string label, role;
  int64_t generations = 0, failed = 0, peak_bytes = 0;
  double tau = 0, tok_s = 0;       // pooled over everything measured; 0 when nothing was
  std::optional<double> no_draft;  // share of steps without a draft; absent for plain decoding
};

struct ShownRun : results::RunRow {
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
// Of a turn: its batch, or null where it was decoded alone.
nlohmann::ordered_json batch_json(const ShownTurn& turn);
std::string batch_text(const ShownTurn& turn);  // the same for people, "" where it was alone

// The generation of another arm for the same prompt, repeat and sample. `arm`: a label, a method
// name, or "AR" in any case for the plain decoding of the same model (RunData::reference).
int64_t find_counterpart(const results::ResultStore& store, const ShownGeneration& generation,
                         const std::string& arm);

}  // namespace evalrun::cli
