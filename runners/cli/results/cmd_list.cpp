// evalrun list WHAT: what can be named on the command line, and whether it can be used here.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "datasets/dataset.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/devices.h"
#include "engine/model/assemble.h"
#include "engine/model/shape_model.h"
#include "engine/model/shapes.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "evaluators/evaluator.h"
#include "methods/registration.h"
#include "reports/papers/form.h"
#include "reports/table/metric_glossary.h"
#include "results/queries.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/output.h"
#include "runners/cli/results/methods_document.h"
#include "runners/plan/suite.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ListArguments {
  std::string what;
  std::string data_root;
  bool markdown = false;
  bool papers = false;
};

// Every entry starts with the same five keys, so that one reader serves all lists.
Json entry(const std::string& name, bool available, const std::string& needs) {
  return {{"name", name},
          {"lossless", nullptr},
          {"available", available},
          {"needs", needs},
          {"params", Json::array()}};
}

Json param_json(const methods::ParamInfo& p) {
  using Type = methods::ParamInfo::Type;
  Json out{{"name", p.name}, {"default", p.default_value}};
  switch (p.type) {
    case Type::kInt:
      out["type"] = "int";
      break;
    case Type::kNumber:
      out["type"] = "number";
      break;
    case Type::kText:
      out["type"] = "text";
      break;
    case Type::kBool:
      out["type"] = "bool";
      break;
  }
  out["description"] = p.description;
  if (p.bounds.least) out["min"] = *p.bounds.least;
  if (p.bounds.most) out["max"] = *p.bounds.most;
  if (!p.choices.empty()) out["choices"] = p.choices;
  return out;
}

Json list_methods(const ListArguments&, const GlobalOptions&) {
  Json array = Json::array();
  for (const auto& [name, info] : methods::method_registry().entries()) {
    // Every method that is compiled in can run here; what it needs of the user stands in `needs`.
    Json e = entry(name, true, info.needs);
    e["lossless"] = methods::to_string(info.lossless);
    for (const methods::ParamInfo& p : info.params) e["params"].push_back(param_json(p));
    e["summary"] = info.summary;
    e["source"] = info.source;
    e["version"] = info.version;
    e["notes"] = info.notes;
    array.push_back(std::move(e));
  }
  return array;
}

Json option_json(const base::OptionInfo& option) {
  Json out{{"name", option.name}, {"default", option.default_value}};
  if (option.bounds.least) out["min"] = static_cast<int>(*option.bounds.least);
  if (option.bounds.most) out["max"] = static_cast<int>(*option.bounds.most);
  if (!option.choices.empty()) out["choices"] = option.choices;
  out["summary"] = option.description;
  return out;
}

std::string data_files_text(const datasets::DatasetInfo& info) {
  if (info.files.size() == 1) return info.files[0] + " under the data root";
  return fmt::format("{} and {} more under the data root", info.files[0], info.files.size() - 1);
}

Json list_tasks(const ListArguments& options, const GlobalOptions&) {
  const std::string root = datasets::resolve_data_root(options.data_root);
  Json array = Json::array();
  for (const auto& [name, dataset] : datasets::dataset_registry().entries()) {
    const datasets::DatasetInfo& info = dataset.info;
    const bool built_in = info.files.empty();
    const auto is_there = [&](const std::string& file) {
      return !root.empty() && std::filesystem::exists(root + "/" + file);
    };
    const bool present = built_in || std::any_of(info.files.begin(), info.files.end(), is_there) ||
                         std::any_of(info.alternatives.begin(), info.alternatives.end(), is_there);
    Json e = entry(name, present, built_in ? "nothing" : data_files_text(info));
    e["summary"] = info.summary;
    e["count"] = info.official_count;
    e["max_new"] = info.default_max_new;
    e["evaluators"] = info.evaluators;
    e["parts"] = info.parts;
    e["options"] = Json::array();
    for (const base::OptionInfo& o : info.options) e["options"].push_back(option_json(o));
    e["licence"] = info.licence;
    e["source"] = info.source;
    e["version"] = info.version;
    array.push_back(std::move(e));
  }
  Json e = entry("jsonl:FILE", true, "a JSON Lines file of your own");
  e["summary"] = "prompts from a file";
  array.push_back(std::move(e));
  return array;
}

Json list_evaluators(const ListArguments&, const GlobalOptions&) {
  Json array = Json::array();
  for (const auto& [name, evaluator] : evaluators::evaluator_registry().entries()) {
    Json e = entry(name, true, "nothing");
    e["summary"] = evaluator.info.summary;
    e["unit"] = evaluator.info.unit;
    e["higher_is_better"] = evaluator.info.higher_is_better;
    e["version"] = evaluator.info.version;
    array.push_back(std::move(e));
  }
  return array;
}

// The table leaves out suites of papers unless asked: they are many. JSON has all.
Json list_suites(const ListArguments& options, const GlobalOptions& global) {
  Json array = Json::array();
  for (const runners::BuiltinSuite& builtin : runners::builtin_suites()) {
    if (builtin.paper != options.papers && !global.json) continue;
    const runners::Suite suite = runners::parse_suite(builtin.text, builtin.name);
    Json tasks = Json::array();
    for (const runners::TaskSpec& t : suite.tasks) tasks.push_back(t.task);
    Json e = entry(builtin.name, true, "nothing");
    e["summary"] = suite.summary;
    if (!suite.models.empty()) e["models"] = suite.models;
    e["methods"] = suite.methods;
    e["tasks"] = tasks;
    e["max_new"] = suite.max_new;
    e["repeats"] = suite.repeats;
    e["paper"] = builtin.paper;
    array.push_back(std::move(e));
  }
  return array;
}

// The default model, and every other one in the same folder.
Json list_models(const ListArguments&, const GlobalOptions&) {
  Json array = Json::array();
  const auto add = [&](const std::filesystem::path& path, bool is_default) {
    Json e = entry(path.filename().string(), true, "nothing");
    e["path"] = path.string();
    e["bytes"] = std::filesystem::is_regular_file(path)
                     ? static_cast<int64_t>(std::filesystem::file_size(path))
                     : int64_t{0};
    e["default"] = is_default;
    array.push_back(std::move(e));
  };
  std::filesystem::path standard;
  try {
    standard = ModelOptions{}.path();
    add(standard, true);
  } catch (const base::Error& error) {  // not fetched yet: a fact to list, not a failure
    Json e = entry("default", false, error.hint());
    e["path"] = "";
    e["default"] = true;
    array.push_back(std::move(e));
    return array;
  }
  std::vector<std::filesystem::path> others;
  for (const auto& item : std::filesystem::directory_iterator(standard.parent_path())) {
    const bool is_model =
        item.path().extension() == ".gguf" || std::filesystem::exists(item.path() / "config.json");
    if (is_model && item.path() != standard) others.push_back(item.path());
  }
  std::sort(others.begin(), others.end());
  for (const auto& path : others) add(path, false);
  return array;
}

Json list_runs(const ListArguments&, const GlobalOptions& global) {
  Json array = Json::array();
  if (!std::filesystem::exists(global.db)) return array;
  const results::ResultStore store(global.db, results::ResultStore::Mode::kReadOnly);
  for (const results::ListedRun& listed : results::list_runs(store)) {
    const results::RunRow& run = listed.run;
    const bool finished = !run.finished.empty();
    Json e = entry(std::to_string(run.id), finished, finished ? "nothing" : "resuming");
    e["label"] = run.label;
    e["suite"] = run.suite;
    e["started"] = run.started;
    e["finished"] = finished ? Json(run.finished) : Json();
    e["commit"] = run.commit;
    e["key"] = run.key;
    e["generations"] = listed.counts.stored;
    e["failed"] = listed.counts.failed;
    e["fault"] = listed.fault;
    e["baselines"] = listed.baselines;
    array.push_back(std::move(e));
  }
  return array;
}

Json list_metrics(const ListArguments&, const GlobalOptions&) {
  Json array = Json::array();
  for (const reports::MetricInfo& metric : reports::metric_glossary()) {
    Json e = entry(metric.name, true, "nothing");
    e["summary"] = metric.definition;
    e["source"] = metric.source;
    e["definition"] = reports::definition_of(metric.name);
    array.push_back(std::move(e));
  }
  return array;
}

// Papers' tables that report --as knows.
Json list_tables(const ListArguments&, const GlobalOptions&) {
  Json array = Json::array();
  for (const reports::PaperForm& form : reports::paper_forms()) {
    Json e = entry(form.name(), true, "a run of one of its suites");
    e["suites"] = form.suites;
    e["summary"] = fmt::format("{}, {}: {}", form.title, form.place, form.caption);
    array.push_back(std::move(e));
  }
  return array;
}

Json list_templates(const ListArguments&, const GlobalOptions&) {
  Json array = Json::array();
  for (const std::string& name : engine::chat_template_names())
    array.push_back(entry(name, true, "nothing"));
  return array;
}

Json list_formats(const ListArguments&, const GlobalOptions&) {
  Json array = Json::array();
  for (const engine::WeightFormatSpec& spec : engine::weight_formats()) {
    Json e = entry(std::string(spec.name), true, "nothing");
    e["summary"] = spec.summary;
    array.push_back(std::move(e));
  }
  return array;
}

// Sizes of published models, for cost --shape. Available: the smallest format's weights would fit.
Json list_shapes(const ListArguments&, const GlobalOptions&) {
  const int64_t room = engine::available_memory_bytes();
  Json array = Json::array();
  for (const engine::Shape& shape : engine::known_shapes()) {
    const engine::ModelConfig& c = shape.config;
    Json memory = Json::object();
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const engine::WeightFormatSpec& spec : engine::rounded_formats()) {
      const int64_t bytes = engine::weight_bytes(c, spec.format).with_layers(c.n_layers);
      memory[std::string(spec.name)] = bytes;
      least = std::min(least, bytes);
    }
    Json e = entry(shape.name, least <= room,
                   base::format_bytes(static_cast<double>(least)) + " of memory");
    e["source"] = shape.source;
    e["architecture"] = c.architecture;
    e["parameters"] = engine::n_parameters(c);
    e["layers"] = c.n_layers;
    e["hidden"] = c.d_model;
    e["heads"] = c.n_heads;
    e["kv_heads"] = c.n_kv_heads;
    e["head_dim"] = c.head_dim;
    e["ffn"] = c.d_ffn;
    e["vocab"] = c.vocab_size;
    e["context"] = c.max_context;
    e["tied"] = c.tied_head;
    e["qk_norm"] = c.qk_norm;
    e["rope_theta"] = c.rope.theta;
    e["norm_eps"] = std::stod(fmt::format("{}", c.norm_eps));  // 1e-05, not the float's tail
    e["memory"] = std::move(memory);
    array.push_back(std::move(e));
  }
  return array;
}

// Paths best first; `chosen` is the one a command takes without --isa.
Json list_isas(const ListArguments&, const GlobalOptions&) {
  const std::vector<std::string> available = engine::available_isas();
  const char* forced = std::getenv("EVALRUN_ISA");
  const std::string chosen = forced != nullptr && *forced != '\0' ? forced : available.front();
  Json array = Json::array();
  const auto add = [&](const std::string& name, bool here, const std::string& needs) {
    Json e = entry(name, here, here ? "nothing" : needs);
    e["default"] = here && available.front() == name;
    e["chosen"] = here && name == chosen;
    array.push_back(std::move(e));
  };
  for (const std::string& name : available) add(name, true, "");
  for (const IsaInfo& info : known_isas())
    if (info.needs != "nothing" &&
        std::find(available.begin(), available.end(), info.name) == available.end())
      add(info.name, false, info.needs);
  return array;
}

struct Listing {
  const char* name;
  Json (*make)(const ListArguments&, const GlobalOptions&);
  std::vector<const char*> columns;  // of the table for people
};

const std::vector<Listing>& listings() {
  static const std::vector<Listing> all = {
      {"methods", list_methods, {"name", "lossless", "needs", "params", "summary"}},
      {"tasks", list_tasks, {"name", "available", "count", "max_new", "needs", "summary"}},
      {"evaluators", list_evaluators, {"name", "version", "unit", "summary"}},
      {"suites", list_suites, {"name", "methods", "tasks", "max_new", "repeats", "summary"}},
      {"models", list_models, {"name", "available", "default", "needs", "path"}},
      {"runs",
       list_runs,
       {"name", "label", "suite", "started", "available", "generations", "failed", "baselines",
        "fault"}},
      {"metrics", list_metrics, {"name", "source", "summary"}},
      {"tables", list_tables, {"name", "suites", "summary"}},
      {"templates", list_templates, {"name"}},
      {"formats", list_formats, {"name", "summary"}},
      {"shapes",
       list_shapes,
       {"name", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "q4", "int8", "bf16"}},
      {"isas", list_isas, {"name", "available", "default", "chosen", "needs"}},
  };
  return all;
}

std::string cell(const Json& entry_json, const std::string& column) {
  const auto it = entry_json.find(column);
  // A format's column: bytes of memory.
  if (const auto memory = entry_json.find("memory");
      it == entry_json.end() && memory != entry_json.end() && memory->contains(column))
    return base::format_bytes(memory->at(column).get<double>());
  if (it == entry_json.end() || it->is_null()) return "-";
  if (it->is_boolean()) return it->get<bool>() ? "yes" : "no";
  if (it->is_string()) return it->get<std::string>().empty() ? "-" : it->get<std::string>();
  if (!it->is_array()) return it->dump();
  std::string text;
  for (const Json& item : *it) {
    if (!text.empty()) text += item.is_object() ? "," : " ";
    text += item.is_object()
                ? item["name"].get<std::string>() + "=" + item["default"].get<std::string>()
                : item.get<std::string>();
  }
  return text.empty() ? "-" : text;
}

void run_list(const ListArguments& options, const GlobalOptions& global) {
  const auto found = std::find_if(listings().begin(), listings().end(),
                                  [&](const Listing& l) { return options.what == l.name; });
  if (found == listings().end()) {
    std::vector<std::string> known;
    for (const Listing& l : listings()) known.push_back(l.name);
    throw base::usage_error(fmt::format("cannot list '{}'", options.what),
                            base::suggest(options.what, known));
  }
  if (options.markdown) {
    if (options.what != "methods" || global.json)
      throw base::usage_error("--markdown is the document of the methods",
                              "evalrun list methods --markdown");
    std::string document = methods_document();
    document.pop_back();  // print_line ends the last line
    return print_line(document);
  }
  const Json array = found->make(options, global);
  if (global.json) return print_json_document(array);
  std::vector<std::vector<std::string>> rows;
  for (const Json& e : array) {
    std::vector<std::string> row;
    for (const char* column : found->columns) row.push_back(cell(e, column));
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return print_line(fmt::format("no {} yet", found->name));
  std::vector<std::string> header;
  for (const char* column : found->columns)
    header.push_back(std::string(column) == "available" && options.what == "runs" ? "finished"
                                                                                  : column);
  print_line(aligned_table(header, rows));
  if (options.what == "suites" && !options.papers)
    print_line("\nSuites that reproduce figures of papers: evalrun list suites --papers");
}

}  // namespace

void add_list_command(CLI::App& app, Context& context) {
  auto* command =
      app.add_subcommand("list", "List methods, tasks, suites, models, runs, metrics, ...");
  auto options = std::make_shared<ListArguments>();
  command
      ->add_option("what", options->what,
                   "methods, tasks, evaluators, suites, models, runs, metrics, tables, templates, "
                   "formats, shapes, isas")
      ->required();
  add_data_root(*command, options->data_root);
  command->add_flag(
      "--papers", options->papers,
      "Of suites: those that reproduce figures of papers (with --json all are listed)");
  command->add_flag("--markdown", options->markdown, "Of methods: the whole docs/methods.md");
  command->footer(
      "With --json: an array of objects with name, lossless (none, greedy, both; null when it "
      "does\n"
      "not apply), available (can it run here), needs, params, and fields of its own kind.\n\n"
      "Examples:\n"
      "  evalrun list methods\n"
      "  evalrun list tasks --data-root ~/data\n"
      "  evalrun list suites --papers\n"
      "  evalrun list shapes                     # sizes that cost --shape takes\n"
      "  evalrun list metrics --json");
  command->callback([options, command, &context] {
    if (options->what != "tasks")
      refuse_given(*command, {"--data-root"}, "list " + options->what + ", only for tasks");
    if (options->what != "suites")
      refuse_given(*command, {"--papers"}, "list " + options->what + ", only for suites");
    run_list(*options, context.global);
  });
}

}  // namespace evalrun::cli
