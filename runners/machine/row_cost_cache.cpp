#include "runners/machine/row_cost_cache.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "engine/cost/machine_probes.h"
#include "engine/devices.h"
#include "runners/machine/build_info.h"
#include "runners/machine/environment.h"
#include "runners/machine/gpu_state.h"

namespace evalrun::runners {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;         // of the file
constexpr size_t kMostTables = 64;  // in the file; the oldest go
constexpr int kStartRounds = 15;    // small models need no more
constexpr const char* kNoFile = "there is no such file";
constexpr int kBatchRows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};  // of each sequence

Json read_cache(const std::string& file) {
  if (!std::filesystem::exists(file)) throw base::data_error(file, "", kNoFile);
  const nlohmann::json json = base::parse_json(base::read_file(file), file);
  base::ObjectReader reader(json, file, "");
  if (const int version = reader.required<int>("version"); version != kVersion)
    throw base::data_error(file, "version", fmt::format("is {}, not {}", version, kVersion));
  const nlohmann::json* tables = reader.raw("tables");
  if (tables == nullptr || !tables->is_object())
    throw base::data_error(file, "tables", "is missing");
  return *tables;
}

// Adds the table to what the file holds now: another process may have written meanwhile. The last
// writer wins, and what the other one loses is a second or two.
void write_cache(const std::string& file, const std::string& key,
                 const engine::RowCostTable& table) {
  Json tables = Json::object();
  try {
    tables = read_cache(file);
  } catch (const base::Error&) {  // none yet, or broken: written anew
  }
  Json entry = to_json(table);
  entry["measured"] = utc_now();
  tables[key] = std::move(entry);
  while (tables.size() > kMostTables) {
    const auto age = [](const Json& t) { return t.is_object() ? t.value("measured", "") : ""; };
    auto oldest = tables.begin();
    for (auto it = tables.begin(); it != tables.end(); ++it)
      if (age(*it) < age(*oldest)) oldest = it;
    tables.erase(oldest);
  }
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  base::write_file_atomic(file, Json({{"version", kVersion}, {"tables", tables}}).dump(1) + "\n");
}

engine::RowCostTable measure(const RowCostRequest& request, int sequences) {
  engine::RowCostOptions options;
  options.sequences = sequences;
  options.seconds = request.seconds;
  if (sequences > 1) {
    options.rows.assign(std::begin(kBatchRows), std::end(kBatchRows));
    std::erase_if(options.rows, [&](int n) { return n * sequences > engine::kMaxRows; });
    options.seconds /= static_cast<double>(std::count_if(
        request.batches.begin(), request.batches.end(), [](int size) { return size > 1; }));
  }
  options.most_rounds = kStartRounds;
  // A model of seconds per forward shall not wait a minute for a table of 64 rows.
  options.limit_seconds = 3 * request.seconds;
  options.context =
      std::clamp(request.model->config().max_context - options.rows.back(), 1, options.context);
  engine::SessionOptions session = request.session;
  session.max_tokens = engine::row_cost_capacity(options);
  session.n_sequences = sequences;
  // On a GPU the phases are events between single launches, and decoding runs whole graphs.
  session.measure_phases = !engine::is_gpu(session.device);
  std::vector<std::unique_ptr<engine::Session>> sessions;
  sessions.push_back(engine::Session::create(request.model, session));
  return engine::measure_row_cost(sessions, options).front();
}

// From the file or measured. Of `result` it takes the round trip and sets what is not a table.
engine::RowCostTable obtain_table(const RowCostRequest& request, int sequences,
                                  const std::string& processor, MeasuredRowCost& result) {
  engine::SessionOptions session = request.session;
  session.n_sequences = sequences;
  const std::string placement = placement_class(result.round_trip_ns, session.n_threads);
  const std::string key =
      request.cache_file.empty() ? "" : row_cost_key(*request.model, session, processor, placement);
  if (!key.empty()) {
    try {
      const Json tables = read_cache(request.cache_file);
      if (const auto found = tables.find(key); found != tables.end()) {
        if (auto table = row_cost_from_json(*found);
            table && table->shape.empty() && table->sequences == sequences)
          return std::move(*table);
        result.problem = fmt::format("{}: a broken table is measured anew", request.cache_file);
      }
    } catch (const base::Error& error) {
      if (!error.message().ends_with(kNoFile)) result.problem = error.message();
    }
  }
  result.cached = false;
  engine::RowCostTable table = measure(request, sequences);
  if (key.empty() || !request.keep) return table;
  try {
    write_cache(request.cache_file, key, table);
  } catch (
      const std::exception& error) {  // no room, no right to write: the table is good all the same
    result.problem = error.what();
  }
  return table;
}

void obtain_batch(const RowCostRequest& request, int sequences, const std::string& processor,
                  MeasuredRowCost& result) {
  const auto fails = [&](const std::string& why) {
    result.problem = fmt::format("T(n) of {} sequences: {}", sequences, why);
  };
  try {
    engine::RowCostTable table = obtain_table(request, sequences, processor, result);
    if (table.rows.size() < 2) return fails("more than one row of each takes too long");
    result.batches[sequences] = std::move(table);
  } catch (const base::DeviceFault&) {
    throw;
  } catch (const std::exception& error) {
    fails(error.what());
  }
}

MeasuredRowCost obtain(const RowCostRequest& request) {
  MeasuredRowCost result;
  result.round_trip_ns = engine::cache_line_round_trip_ns(request.session.n_threads);
  const auto environment = capture_environment();
  const auto gpu = gpu_environment(request.session.device);
  const auto& described = gpu.empty() ? environment : gpu;
  const auto name = described.find(gpu.empty() ? "cpu" : "gpu");
  const std::string processor = name != described.end() ? name->second : "unknown";
  result.cached = true;
  result.table = obtain_table(request, 1, processor, result);
  for (const int sequences : request.batches)
    if (sequences > 1) obtain_batch(request, sequences, processor, result);
  return result;
}

}  // namespace

Json to_json(const engine::RowCostTable& table) {
  Json rows = Json::array();
  for (const engine::RowCost& r : table.rows) {
    const engine::PhaseTimes& p = r.phases;
    rows.push_back({{"rows", r.rows},
                    {"ms", r.ms},
                    {"q1_ms", r.q1_ms},
                    {"q3_ms", r.q3_ms},
                    {"ratio", r.ms / table.rows.front().ms},
                    {"phases",
                     {{"weights", p.weights},
                      {"attention", p.attention},
                      {"norms", p.norms},
                      {"head", p.head},
                      {"waits", p.waits}}}});
  }
  Json json{{"context", table.context},
            {"sequences", table.sequences},
            {"bytes", table.bytes},
            {"rounds", table.rounds},
            {"rows", std::move(rows)}};
  if (!table.shape.empty()) json["shape"] = table.shape;
  return json;
}

std::optional<engine::RowCostTable> row_cost_from_json(const nlohmann::json& json) {
  try {
    base::ObjectReader reader(json, "row cost", "");
    engine::RowCostTable table;
    table.shape = reader.optional<std::string>("shape", "");
    table.context = reader.required<int>("context");
    table.sequences = reader.optional<int>("sequences", 1);  // older tables are of one
    table.bytes = reader.required<size_t>("bytes");
    table.rounds = reader.required<int>("rounds");
    const nlohmann::json* rows = reader.raw("rows");
    if (rows == nullptr || !rows->is_array()) return std::nullopt;
    for (const nlohmann::json& row : *rows) {
      base::ObjectReader r(row, "row cost", "rows");
      engine::RowCost cost;
      cost.rows = r.required<int>("rows");
      cost.ms = r.required<double>("ms");
      cost.q1_ms = r.required<double>("q1_ms");
      cost.q3_ms = r.required<double>("q3_ms");
      const nlohmann::json* phases = r.raw("phases");
      if (phases == nullptr) return std::nullopt;
      base::ObjectReader p(*phases, "row cost", "phases");
      cost.phases.weights = p.required<double>("weights");
      cost.phases.attention = p.required<double>("attention");
      cost.phases.norms = p.required<double>("norms");
      cost.phases.head = p.required<double>("head");
      cost.phases.waits = p.required<double>("waits");
      const int least = table.rows.empty() ? 1 : table.rows.back().rows + 1;
      if (cost.rows < least || !(cost.ms > 0) || !std::isfinite(cost.ms)) return std::nullopt;
      table.rows.push_back(cost);
    }
    if (table.rows.empty() || table.rows.front().rows != 1 || table.context < 1 ||
        table.sequences < 1)
      return std::nullopt;
    return table;
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

std::string placement_class(double round_trip_ns, int n_threads) {
  if (n_threads <= 1) return "one";
  return round_trip_ns < engine::kFarRoundTripNs ? "near" : "far";
}

std::string row_cost_key(const engine::Model& model, const engine::SessionOptions& session,
                         const std::string& cpu, const std::string& placement) {
  if (model.hash().empty()) return "";
  const BuildInfo& build = build_info();
  std::string key = fmt::format(
      "{} {} {}{} t{} kv{}{} | {} | {} | {} {}", model.hash(), engine::name_of(model.format()),
      session.isa, session.one_isa ? " one-isa" : "", session.n_threads, session.kv_cache ? 1 : 0,
      session.kv_dtype, cpu, placement, build.version, build.id);
  if (session.n_sequences > 1) key += fmt::format(" | {} sequences", session.n_sequences);
  for (const char* variable : {"EVALRUN_NUMA", "EVALRUN_PIN"})
    if (const char* value = std::getenv(variable); value != nullptr)
      key += fmt::format(" | {}={}", variable, value);
  return key;
}

engine::RowCostTable MeasuredRowCost::of_batch(int batch) const {
  const auto own = batches.find(batch);
  return own != batches.end() ? own->second : table.of_batch(batch);
}

std::string row_cost_id(const engine::RowCostTable& table) {
  return base::sha256_hex(to_json(table).dump()).substr(0, 16);
}

std::string row_cost_cache_path() {
  const std::filesystem::path home = base::home_folder();
  return home.empty() ? "" : (home / "row-cost.json").string();
}

MeasuredRowCost obtain_row_cost(const RowCostRequest& request) {
  MeasuredRowCost result;
  try {
    return obtain(request);
  } catch (const base::DeviceFault& fault) {
    throw base::DeviceFault("measuring T(n)", fault);
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  return result;
}

}  // namespace evalrun::runners
