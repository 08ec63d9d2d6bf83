// evalrun cost: what a forward of n rows costs on this machine, where the time goes, and how far
// from the speed of memory it is. Several weight formats are measured in turn in one process. With
// --shape the weights are random, and only the model's sizes are real.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "engine/base/units.h"
#include "engine/cost/machine_probes.h"
#include "engine/cost/row_cost.h"
#include "engine/devices.h"
#include "engine/model/shape_model.h"
#include "runners/cli/cli.h"
#include "runners/cli/measure/cost_models.h"
#include "runners/cli/output.h"
#include "runners/machine/row_cost_cache.h"
#include "runners/plan/batches.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBandwidthSeconds = 0.01;  // of a look; each way to read is tried at least once
constexpr double kRoundSeconds = 2;         // per format, when --rounds is not given

struct CostArguments {
  ModelOptions model;
  std::optional<std::string> shape;  // instead of the model
  std::vector<std::string> dtypes = {kDefaultDtype};
  std::vector<int> rows = engine::RowCostOptions{}.rows;
  bool rows_given = false;
  std::vector<int> sequences = {1};
  std::optional<std::vector<int>> prefill;
  std::optional<int> context;
  int rounds = 0;
};

constexpr int kContext = 256, kPrefill = 512;  // or the model's context, when that is smaller

// One format: its model, its session and its table stand at the same index. Sessions and tables are
// of one number of sequences.
struct Measured {
  std::optional<engine::Shape> shape;
  std::vector<CostModel> models;
  std::vector<std::unique_ptr<engine::Session>> sessions;
  std::vector<engine::RowCostTable> tables;
  double round_trip_ns = 0;
};

// Rows of a forward are those of all its sequences: asked for, they must fit.
void check_rows(const CostArguments& o) {
  const int rows = *std::max_element(o.rows.begin(), o.rows.end());
  const int sequences = *std::max_element(o.sequences.begin(), o.sequences.end());
  if (o.rows_given && rows > engine::kMaxRows / sequences)
    throw base::usage_error(fmt::format("--rows {} of each of {} sequences are {} rows", rows,
                                        sequences, rows * sequences),
                            fmt::format("a forward has at most {}: --rows {} or fewer --sequences",
                                        engine::kMaxRows, engine::kMaxRows / sequences));
}

// What was asked for, with the defaults a model of this size and so many sequences allow.
engine::RowCostOptions limited(const CostArguments& o, const engine::ModelConfig& config,
                               int sequences) {
  const auto check = [&](const char* option, int n) {
    if (n > config.max_context)
      throw base::usage_error(
          fmt::format("{}: {} tokens are more than the model's context", option, n),
          fmt::format("{} takes 1 to {} tokens, and {} rows after them", config.name,
                      config.max_context, engine::kMaxRows));
  };
  engine::RowCostOptions options;
  options.rows = o.rows;
  options.sequences = sequences;
  std::erase_if(options.rows, [&](int n) { return n > engine::kMaxRows / sequences; });
  options.context = o.context.value_or(std::min(kContext, config.max_context));
  check("--context", options.context);
  for (const int n : o.prefill.value_or(std::vector{std::min(kPrefill, config.max_context)})) {
    check("--prefill", n);
    if (n > 0) options.prefill.push_back(n);
  }
  std::sort(options.prefill.begin(), options.prefill.end());
  return options;
}

std::function<void(int, int)> progress_line(const GlobalOptions& global) {
  if (global.verbosity < 0 || ::isatty(STDERR_FILENO) == 0) return nullptr;
  const auto last = std::make_shared<std::chrono::steady_clock::time_point>();
  return [last](int round, int of) {
    const auto now = std::chrono::steady_clock::now();
    // Rarely: a write between two forwards lets the pool fall asleep.
    if (now - *last < std::chrono::milliseconds(250)) return;
    *last = now;
    fmt::print(stderr, "\r\x1b[Kround {} of about {}", round, of);
    std::fflush(stderr);
  };
}

engine::SessionOptions session_for(const CostArguments& o, const engine::RowCostOptions& options) {
  engine::SessionOptions session = o.model.session_options(engine::row_cost_capacity(options));
  session.n_sequences = options.sequences;
  // On a GPU the phases are events between single launches, and decoding runs whole graphs.
  session.measure_phases = !engine::is_gpu(session.device);
  return session;
}

// Loads or makes the models. Wrong names are said before a model is read for seconds.
Measured prepare(const CostArguments& o) {
  check_rows(o);
  (void)o.model.session_options(0);  // the device and the path
  Measured m;
  std::vector<engine::WeightFormat> formats;
  for (const std::string& name : o.dtypes)
    formats.push_back(o.shape ? shape_format(name) : engine::weight_format_by_name(name));
  if (o.shape) {
    m.shape = engine::find_shape(*o.shape);
    const int most = *std::max_element(o.sequences.begin(), o.sequences.end());
    m.models =
        make_shape_models(*m.shape, formats, session_for(o, limited(o, m.shape->config, most)));
    return m;
  }
  for (const std::string& name : o.dtypes) {
    ModelOptions model = o.model;
    model.dtype = name;
    auto loaded = model.load();
    const int layers = loaded->config().n_layers;
    m.models.push_back({std::move(loaded), layers});
  }
  return m;
}

void measure(const CostArguments& o, int sequences, const GlobalOptions& global, Measured& m) {
  engine::RowCostOptions options = limited(o, m.models.front().model->config(), sequences);
  options.rounds = o.rounds;
  options.most_rounds = std::max(options.most_rounds, o.rounds);
  options.bandwidth_seconds = kBandwidthSeconds;
  options.seconds = kRoundSeconds * static_cast<double>(o.dtypes.size());
  options.progress = progress_line(global);
  m.sessions.clear();  // of the number before, which would take memory and wake up
  for (const CostModel& made : m.models)
    m.sessions.push_back(engine::Session::create(made.model, session_for(o, options)));
  m.round_trip_ns = engine::cache_line_round_trip_ns(m.sessions.front()->n_threads());
  m.tables = engine::measure_row_cost(m.sessions, options);
  if (m.shape)
    for (engine::RowCostTable& table : m.tables) table.shape = m.shape->name;
  if (options.progress) fmt::print(stderr, "\r\x1b[K");
}

// Of the sequences together, where each emits one token a step.
double tokens_per_s(const engine::RowCostTable& table) {
  return 1e3 * table.sequences / table.ms(1);
}

// Of keys and values.
size_t bytes_per_token(const engine::Session& session) {
  return session.bytes_per_forward(1) - session.bytes_per_forward(0);
}

Json json_of(const Measured& m, size_t i) {
  const engine::RowCostTable& table = m.tables[i];
  const engine::Model& model = *m.models[i].model;
  Json out{{"model", model.config().name},
           {"shape", nullptr},
           {"shape_source", m.shape ? Json(m.shape->source) : Json()},
           {"weights", m.shape ? "random" : "model"},
           {"layers", model.config().n_layers},
           {"distinct_layers", m.models[i].distinct_layers},
           {"dtype", engine::name_of(model.format())},
           {"isa", m.sessions[i]->isa()},
           {"threads", m.sessions[i]->n_threads()}};
  out.update(runners::to_json(table));
  out["weight_bytes"] = model.weight_bytes();
  out["kv_bytes_per_token"] = bytes_per_token(*m.sessions[i]);
  out["workspace_bytes"] = m.sessions[i]->workspace_bytes();
  const engine::WeightPlacement placement = m.sessions[i]->weight_placement();
  out["weight_placement"] = placement.how;
  out["weight_copy_bytes"] = placement.copy_bytes;
  out["tokens_per_s"] = tokens_per_s(table);
  out["floor_ms"] = table.floor_ms();
  out["floor_share"] = table.floor_share;
  out["bandwidth_gb_s"] = table.bandwidth / 1e9;
  out["pingpong_ns"] = m.round_trip_ns > 0 ? Json(m.round_trip_ns) : Json();
  out["placement"] = runners::placement_class(m.round_trip_ns, m.sessions[i]->n_threads());
  out["prefill"] = Json::array();
  for (const engine::PrefillCost& p : table.prefill)
    out["prefill"].push_back(
        {{"tokens", p.tokens}, {"ms", p.ms}, {"tokens_per_s", p.tokens_per_s()}});
  return out;
}

std::string table_of(const engine::RowCostTable& table) {
  std::vector<std::vector<std::string>> cells;
  for (const engine::RowCost& r : table.rows) {
    const double total = r.phases.total();
    const auto share = [&](double ms) {
      return total > 0 ? fmt::format("{:.0f} %", 100 * ms / total) : std::string("-");
    };
    cells.push_back({std::to_string(r.rows), fmt::format("{:.3f}", r.ms),
                     fmt::format("[{:.3f} {:.3f}]", r.q1_ms, r.q3_ms),
                     fmt::format("{:.2f}", r.ms / table.rows.front().ms), share(r.phases.weights),
                     share(r.phases.attention), share(r.phases.norms), share(r.phases.head),
                     share(r.phases.waits),
                     fmt::format("{:.1f}", static_cast<double>(table.bytes) / r.ms / 1e6)});
  }
  return aligned_table({table.sequences == 1 ? "rows" : "rows each", "ms", "quartiles", "T(n)/T(1)",
                        "weights", "attention", "norms", "head", "waits", "GB/s"},
                       cells);
}

// What the weights are, and why they come from memory as a model's do.
std::string shape_text(const Measured& m, size_t i) {
  const CostModel& made = m.models[i];
  const int layers = made.model->config().n_layers;
  if (made.distinct_layers == layers)
    return fmt::format("random weights, all {} layers distinct; shape: {}", layers,
                       m.shape->source);
  const auto bytes = [](int64_t n) { return base::format_bytes(static_cast<double>(n)); };
  const engine::WeightBytes weights =
      engine::weight_bytes(made.model->config(), made.model->format());
  return fmt::format(
      "random weights, {} layers that are {} distinct ones in turn: {}, where caches hold {}; "
      "shape: {}",
      layers, made.distinct_layers, bytes(made.distinct_layers * weights.layer),
      bytes(device_cache_bytes(m.sessions[i]->options().device)), m.shape->source);
}

void print_one(const Measured& m, size_t i) {
  const engine::RowCostTable& table = m.tables[i];
  const engine::Session& session = *m.sessions[i];
  const engine::Model& model = *m.models[i].model;
  print_line(fmt::format(
      "{} · {} · {} · {} threads · context {}{} · {} rounds", model.config().name,
      engine::name_of(model.format()), session.isa(), session.n_threads(), table.context,
      table.sequences == 1 ? "" : fmt::format(" of each of {} sequences", table.sequences),
      table.rounds));
  if (m.shape) print_line(shape_text(m, i));
  print_line(table_of(table));
  const std::string bytes = base::format_bytes(table.bytes);
  print_line(table.bandwidth > 0
                 ? fmt::format("floor {:.3f} ms = {} / {:.1f} GB/s; T(1) reaches {:.0f} %; {:.1f} "
                               "tok/s",
                               table.floor_ms(), bytes, table.bandwidth / 1e9,
                               100 * table.floor_share, tokens_per_s(table))
                 : fmt::format("{} are read, {:.1f} GB/s at T(1); {:.1f} tok/s", bytes,
                               static_cast<double>(table.bytes) / table.ms(1) / 1e6,
                               tokens_per_s(table)));
  for (const engine::PrefillCost& p : table.prefill)
    print_line(fmt::format("prompt of {} tokens: {:.1f} ms, {:.0f} tok/s", p.tokens, p.ms,
                           p.tokens_per_s()));
  const auto size = [](size_t n) { return base::format_bytes(static_cast<double>(n)); };
  print_line(fmt::format("memory: {} of weights, {} a token of keys and values, {} to compute in",
                         size(model.weight_bytes()), size(bytes_per_token(session)),
                         size(session.workspace_bytes())));
  const engine::WeightPlacement placement = session.weight_placement();
  if (placement.nodes == 1) return;
  print_line(fmt::format(
      "weights on {} NUMA nodes: {}{}{}", placement.nodes, placement.how,
      placement.copy_bytes == 0 ? "" : fmt::format(", {} of copies", size(placement.copy_bytes)),
      placement.refusal.empty()
          ? ""
          : fmt::format(" (the kernel moves no pages: {})", placement.refusal)));
}

void run_cost(const CostArguments& o, const GlobalOptions& global) {
  Measured m = prepare(o);
  Json all = Json::array();
  for (const int sequences : o.sequences) {
    measure(o, sequences, global, m);
    for (size_t i = 0; i < m.tables.size(); ++i) {
      if (global.json) {
        all.push_back(json_of(m, i));
        continue;
      }
      print_one(m, i);
      print_line("");
    }
  }
  if (global.json) {
    if (all.size() == 1) return print_json_document(all.front());
    return print_json_document({{"formats", all}});
  }
  if (m.round_trip_ns > 0)
    print_line(
        fmt::format("cache line from core to core and back: {:.0f} ns ({})", m.round_trip_ns,
                    runners::placement_class(m.round_trip_ns, m.sessions.front()->n_threads())));
}

constexpr const char* kCostFooter =
    "A row is a token after the context; all rows of a forward form a chain, go through every\n"
    "layer and the output matrix, and each gives its likeliest token. ms is the median over the\n"
    "rounds, in which all row counts and formats take turns. Shares are of the time of one "
    "thread:\n"
    "products with the layers' weights, attention, norms (with rounding and rotation), output\n"
    "matrix, and waiting for other threads. The floor is what one forward must read - all "
    "weights\n"
    "once, keys and values of the context - at the best speed a plain read of as many bytes "
    "reached.\n\n"
    "--sequences 8: a step of a batch of eight, n rows of each, whose keys and values are read, "
    "too.\n"
    "T(n) is of n rows of each then, so T(1) gives eight tokens; tok/s is of all eight.\n\n"
    "--shape needs no weights: it tells T(n), prefill and memory of a size before a download. A "
    "few\n"
    "layers of random weights, many times what the caches hold, are used in turn; each layer has "
    "its\n"
    "own keys and values. `auto` is int8 then, and `stored` is refused. docs/predict.md: what "
    "that\n"
    "gives with a measured tau.\n\n"
    "Examples:\n"
    "  evalrun cost\n"
    "  evalrun cost -m model.gguf --dtype f32,bf16,int8 --rows 1,8,16,32 --context 1024\n"
    "  evalrun cost --rows 340,441,512 --prefill 128,512,2048 --json\n"
    "  evalrun cost --sequences 1,8 --rows 1,2,4,8\n"
    "  evalrun cost --shape llama-3.2-3b --dtype q4,int8\n"
    "  evalrun cost --shape config.json --dtype q4 --json > cost.json";

}  // namespace

void add_cost_command(CLI::App& app, Context& context) {
  auto* command =
      app.add_subcommand("cost", "What a forward of n rows costs here, and how near the floor");
  auto options = std::make_shared<CostArguments>();
  options->model.add_without_formats(*command);
  command
      ->add_option("--shape", options->shape,
                   "Random weights in the shape of a published model (evalrun list shapes) or of a "
                   "config.json from Hugging Face, instead of a model")
      ->type_name("NAME|FILE")
      ->excludes(command->get_option("--model"))
      ->excludes(command->get_option("--chat-template"))
      ->group("Model");
  command
      ->add_option("--dtype", options->dtypes,
                   "Weight formats, measured in turn: " + describe_formats())
      ->delimiter(',')
      ->capture_default_str()
      ->group("Model");
  command
      ->add_option("--rows", options->rows,
                   "Row counts of a forward, of each sequence; 1 is always measured")
      ->delimiter(',')
      ->check(CLI::Range(1, engine::kMaxRows))
      ->capture_default_str();
  command
      ->add_option("--sequences", options->sequences,
                   "Sequences that are computed together, each after a context of its own; several "
                   "numbers give a table each")
      ->delimiter(',')
      ->check(CLI::Range(1, runners::kLargestBatch))
      ->capture_default_str();
  command->add_option("--context", options->context, "Committed tokens below the rows (256)")
      ->check(CLI::PositiveNumber);
  command->add_option("--prefill", options->prefill, "Prompt lengths to prefill (512); 0 = none")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--rounds", options->rounds,
                   "Forwards per row count (default: about two seconds per format)")
      ->check(CLI::Range(1, 100000));
  command->footer(kCostFooter);
  command->callback([options, command, &context] {
    options->rows_given = command->count("--rows") > 0;
    run_cost(*options, context.global);
  });
}

}  // namespace evalrun::cli
