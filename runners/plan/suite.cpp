#include "runners/plan/suite.h"

#include <algorithm>
#include <filesystem>

#include "datasets/spec.h"
#include "engine/base/braces.h"
#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "evaluators/evaluator.h"
#include "methods/faults.h"
#include "methods/registration.h"
#include "runners/plan/embedded_suites.h"
#include "runners/plan/method_lists.h"
#include "runners/plan/suite_endpoints.h"

namespace evalrun::runners {
namespace {

using base::ExitCode;
using base::ObjectReader;
using base::usage_error;

std::vector<std::string> string_list(ObjectReader& reader, const std::string& key) {
  std::vector<std::string> out;
  const nlohmann::json* list = reader.raw(key);
  if (list == nullptr) return out;
  if (!list->is_array()) reader.fail(key, "must be a list of strings");
  for (const nlohmann::json& item : *list) {
    if (!item.is_string()) reader.fail(key, "must be a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<TaskSpec> task_list(ObjectReader& reader, const std::string& file) {
  std::vector<TaskSpec> tasks;
  const nlohmann::json* list = reader.raw("tasks");
  if (list == nullptr) return tasks;
  if (!list->is_array()) reader.fail("tasks", "must be a list of names or {\"task\": ...} objects");
  for (size_t i = 0; i < list->size(); ++i) {
    const nlohmann::json& item = (*list)[i];
    TaskSpec task;
    if (item.is_string()) {
      task.task = item.get<std::string>();
    } else {
      ObjectReader fields(item, file, fmt::format("tasks[{}]", i), ExitCode::kUsage);
      task.task = fields.required<std::string>("task");
      task.limit = fields.optional<double>("limit", 0);
      task.max_new = fields.optional<int>("max_new", 0);
      task.chat_template = fields.optional<std::string>("chat_template", "");
      fields.finish();
    }
    tasks.push_back(std::move(task));
  }
  return tasks;
}

void read_warmup(ObjectReader& reader, Suite& suite) {
  const nlohmann::json* warmup = reader.raw("warmup");
  if (warmup == nullptr) return;
  if (warmup->is_string() && warmup->get<std::string>() == "auto")
    suite.warmup = -1;
  else if (warmup->is_number_integer() && warmup->get<int64_t>() >= 0 &&
           warmup->get<int64_t>() <= 1000)
    suite.warmup = warmup->get<int>();
  else
    reader.fail("warmup", "must be \"auto\" or a number of generations from 0 to 1000");
}

void read_evaluators(ObjectReader& reader, Suite& suite) {
  const nlohmann::json* value = reader.raw("evaluators");
  if (value == nullptr) return;
  if (value->is_string()) {
    const auto text = value->get<std::string>();
    if (text != "auto" && text != "none")
      reader.fail("evaluators", "must be \"auto\", \"none\" or a list of names");
    suite.evaluate = text == "auto";
    return;
  }
  suite.evaluators = string_list(reader, "evaluators");
  suite.evaluate = !suite.evaluators.empty();
}

void check_range(const std::string& where, const char* field, double value, double low,
                 double high) {
  if (!(value >= low && value <= high))
    throw usage_error(
        fmt::format("{}: field '{}' is {}, outside {} to {}", where, field, value, low, high));
}

// "slow:10%" and the like are decorators for tests of the gate, never something to measure.
void refuse_fault(std::string_view method, const std::string& where) {
  const std::string_view name = method.substr(0, method.find(':'));
  for (const std::string& fault : methods::known_faults())
    if (name == std::string_view(fault).substr(0, fault.find(':')))
      throw usage_error(fmt::format("{}: '{}' is a planted fault, not a method", where, method),
                        "faults are planted by `evalrun check --self-test` only");
}

// Braces expanded, every method in its one spelling, none twice.
void check_method_list(std::vector<std::string>& list, const char* field, const std::string& where,
                       std::vector<std::string>& seen) {
  const auto in_field = [&](const base::Error& e) {
    return base::Error(ExitCode::kUsage,
                       fmt::format("{}: field '{}': {}", where, field, e.message()), e.hint());
  };
  std::vector<std::string> expanded;
  for (const std::string& entry : list) try {
      for (std::string& method : base::expand_braces(entry)) expanded.push_back(method);
    } catch (const base::Error& e) {
      throw in_field(e);
    }
  if (expanded.size() > base::kMostExpanded)
    throw usage_error(fmt::format("{}: field '{}' stands for {} methods, more than {}", where,
                                  field, expanded.size(), base::kMostExpanded));
  list = std::move(expanded);
  for (std::string& method : list) {
    refuse_fault(method, where);
    // What it stands for depends on model and machine: make_plan() puts it in its place.
    const bool by_choice =
        std::string_view(field) == "methods" && base::trim(method) == kAutoMethod;
    try {
      method = by_choice ? std::string(kAutoMethod) : methods::parse_method(method).canonical();
    } catch (const base::Error& e) {
      throw in_field(e);
    }
    if (std::find(seen.begin(), seen.end(), method) != seen.end())
      throw usage_error(fmt::format("{}: field '{}' lists {} twice", where, field, method),
                        "repeat measurements with --repeats; the A/A arm is --aa");
    seen.push_back(method);
  }
}

void check_methods(Suite& suite, const std::string& where) {
  expand_method_lists(suite.methods, suite.optional_methods);
  std::vector<std::string> seen;
  check_method_list(suite.methods, "methods", where, seen);
  check_method_list(suite.optional_methods, "optional_methods", where, seen);
  if (!suite.endpoints.empty()) return;
  // The baseline every ratio needs, first so that arm 0 is always it.
  const std::string ar = methods::parse_method("ar").canonical();
  std::erase(suite.methods, ar);
  suite.methods.insert(suite.methods.begin(), ar);
}

void check_models(const Suite& suite, const std::string& where) {
  for (size_t i = 0; i < suite.models.size(); ++i) {
    const std::string& model = suite.models[i];
    if (model.empty()) throw usage_error(fmt::format("{}: field 'models[{}]' is empty", where, i));
    if (std::find(suite.models.begin(), suite.models.begin() + static_cast<std::ptrdiff_t>(i),
                  model) != suite.models.begin() + static_cast<std::ptrdiff_t>(i))
      throw usage_error(fmt::format("{}: field 'models' lists {} twice", where, model));
  }
}

void check_template(const std::string& where, size_t task, const std::string& name) {
  const std::vector<std::string> known = engine::chat_template_names();
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  throw usage_error(
      fmt::format("{}: field 'tasks[{}].chat_template' is '{}', which is no named template", where,
                  task, name),
      fmt::format("{}; a file with Jinja text is for a whole run: --chat-template FILE",
                  base::suggest(name, known)));
}

void check_tasks(Suite& suite, const std::string& where) {
  if (suite.tasks.empty())
    throw usage_error(fmt::format("{}: no data sets", where),
                      "name some: --tasks samples, or a suite such as quick; `evalrun list tasks`");
  for (size_t i = 0; i < suite.tasks.size(); ++i) {
    TaskSpec& task = suite.tasks[i];
    if (task.task.empty())
      throw usage_error(fmt::format("{}: field 'tasks[{}]' is empty", where, i));
    task.task = datasets::checked_dataset_spec(task.task);
    for (size_t j = 0; j < i; ++j)
      if (suite.tasks[j].task == task.task)
        throw usage_error(fmt::format("{}: field 'tasks' lists {} twice", where, task.task));
    if (task.limit >= 1 && task.limit != static_cast<double>(static_cast<int64_t>(task.limit)))
      throw usage_error(fmt::format("{}: field 'tasks[{}].limit' is {}: a count or a share below 1",
                                    where, i, task.limit));
    check_range(where, "tasks.max_new", task.max_new, 0, 1 << 20);
    check_template(where, i, task.chat_template);
  }
}

// Where nothing is drawn a sampler would change the run's key and nothing else.
void check_sampler(const Suite& suite, const std::string& where) {
  const auto draws = [](double temperature) { return temperature > 0; };
  if (suite.sampling.sampler == engine::Sampler::kInverse || draws(suite.sampling.temperature) ||
      std::any_of(suite.temperatures.begin(), suite.temperatures.end(), draws))
    return;
  throw usage_error(
      fmt::format("{}: field 'sampler' is '{}' with temperature 0: greedy decoding draws nothing",
                  where, engine::to_string(suite.sampling.sampler)),
      "sample with a temperature above 0, or take --sampler inverse (suite: leave \"sampler\" "
      "out)");
}

// A path is led, and a context computed anew, for one sequence at a time.
void check_what_batches_leave(const Suite& suite, const std::string& where) {
  const auto refuse = [&](const char* field, const char* remedy) {
    throw usage_error(fmt::format("{}: field '{}' with batches of {}: it is of batches of one",
                                  where, field, suite.batches.largest()),
                      fmt::format("{}, or measure with --batch 1", remedy));
  };
  if (suite.batches.one()) return;
  if (suite.replay) refuse("replay", "leave --replay out");
  if (!suite.kv_cache) refuse("kv_cache", "leave --no-kv-cache out (suite: \"kv_cache\": true)");
}

// A server decodes together what it likes, and cannot be made to follow a text.
void check_servers(const Suite& suite, const std::string& where) {
  std::vector<std::string> methods = suite.methods;
  std::erase(methods, kAutoMethod);  // not known yet
  check_endpoints({suite.endpoints, suite.baseline, methods}, suite.optional_methods, where);
  if (suite.endpoints.empty()) return;
  if (!suite.batches.one())
    throw usage_error(
        fmt::format("{}: field 'batch' of {} with endpoints: which requests a server decodes "
                    "together is its own choice",
                    where, suite.batches.largest()),
        "measure with --batch 1; `evalrun load` sends several requests at once");
  if (suite.replay)
    throw usage_error(
        fmt::format("{}: field 'replay' with endpoints: a server cannot be made to follow a text",
                    where),
        "leave --replay out");
}

// One number, or a list of them.
void read_temperature(ObjectReader& reader, Suite& suite) {
  const nlohmann::json* value = reader.raw("temperature");
  if (value == nullptr) return;
  const std::string wanted = "must be a number, or a list of different numbers";
  const bool is_list = value->is_array();
  const auto list =
      is_list ? value->get<std::vector<nlohmann::json>>() : std::vector<nlohmann::json>{*value};
  std::vector<double> temperatures;
  for (const nlohmann::json& item : list) {
    if (!item.is_number()) reader.fail("temperature", wanted);
    if (std::find(temperatures.begin(), temperatures.end(), item.get<double>()) !=
        temperatures.end())
      reader.fail("temperature", wanted);
    temperatures.push_back(item.get<double>());
  }
  if (temperatures.empty()) reader.fail("temperature", wanted);
  suite.sampling.temperature = temperatures.front();
  if (is_list) suite.temperatures = temperatures;
}

}  // namespace

const char* to_string(Order order) {
  switch (order) {
    case Order::kInterleaved:
      return "interleaved";
    case Order::kRandom:
      return "random";
    case Order::kSequential:
      return "sequential";
  }
  return "";
}

Order parse_order(std::string_view text, const std::string& where) {
  for (Order o : {Order::kInterleaved, Order::kRandom, Order::kSequential})
    if (text == to_string(o)) return o;
  throw usage_error(fmt::format("{}: unknown order '{}'", where, text),
                    base::suggest(text, {"interleaved", "random", "sequential"}));
}

Suite parse_suite(std::string_view json_text, const std::string& file) {
  nlohmann::json json;
  try {
    json = base::parse_json(json_text, file);
  } catch (const base::Error& e) {  // a suite is a setting, not data
    throw base::Error(ExitCode::kUsage, e.message(), "suites are JSON; see docs/suites.md");
  }
  ObjectReader reader(json, file, "", ExitCode::kUsage);
  for (const char* fault : {"fault", "faults"})
    if (json.contains(fault))
      reader.fail(fault, "is not allowed: measurements never carry planted faults",
                  "faults are planted by `evalrun check --self-test` only");
  Suite suite;
  suite.name = reader.optional<std::string>("name", std::filesystem::path(file).stem().string());
  suite.summary = reader.optional<std::string>("summary", "");
  suite.models = string_list(reader, "models");
  suite.methods = string_list(reader, "methods");
  suite.optional_methods = string_list(reader, "optional_methods");
  read_endpoints(reader, file, suite.endpoints, suite.baseline);
  suite.aa = reader.optional<bool>("aa", suite.aa);
  suite.tasks = task_list(reader, file);
  suite.max_new = reader.optional<int>("max_new", suite.max_new);
  suite.limit = reader.optional<double>("limit", suite.limit);
  suite.max_turns = reader.optional<int>("max_turns", suite.max_turns);
  suite.repeats = reader.optional<int>("repeats", suite.repeats);
  suite.samples = reader.optional<int>("samples", suite.samples);
  read_temperature(reader, suite);
  suite.sampling.top_k = reader.optional<int>("top_k", suite.sampling.top_k);
  suite.sampling.top_p = reader.optional<double>("top_p", suite.sampling.top_p);
  if (reader.has("sampler"))
    suite.sampling.sampler =
        engine::parse_sampler(reader.required<std::string>("sampler"), file + ": field 'sampler'");
  suite.seed = reader.optional<uint64_t>("seed", suite.seed);
  read_warmup(reader, suite);
  suite.warmup_limit_s = reader.optional<double>("warmup_limit_s", suite.warmup_limit_s);
  if (reader.has("order"))
    suite.order = parse_order(reader.required<std::string>("order"), file + ": field 'order'");
  read_batches(reader, file, suite.batches);
  suite.replay = reader.optional<bool>("replay", suite.replay);
  suite.ignore_eos = reader.optional<bool>("ignore_eos", suite.ignore_eos);
  suite.kv_cache = reader.optional<bool>("kv_cache", suite.kv_cache);
  read_evaluators(reader, suite);
  reader.finish();
  return suite;
}

Suite load_suite(const std::string& name_or_path) {
  std::vector<std::string> names;
  for (const BuiltinSuite& builtin : builtin_suites()) {
    if (builtin.name == name_or_path)
      return parse_suite(builtin.text, "built-in suite " + builtin.name);
    names.push_back(builtin.name);
  }
  std::error_code ignored;
  if (!std::filesystem::exists(name_or_path, ignored))
    throw usage_error(
        fmt::format("unknown suite '{}': neither a built-in suite nor a file", name_or_path),
        base::suggest(name_or_path, names));
  if (name_or_path.ends_with(".jsonl"))
    throw usage_error(
        fmt::format("{}: prompts are not a suite", name_or_path),
        fmt::format("to measure them: evalrun run --tasks {} --methods fast", name_or_path));
  return parse_suite(base::read_file(name_or_path), name_or_path);
}

void complete_suite(Suite& suite, const std::string& where) {
  check_models(suite, where);
  check_methods(suite, where);
  check_tasks(suite, where);
  check_range(where, "max_new", suite.max_new, 0, 1 << 20);
  check_range(where, "max_turns", suite.max_turns, 0, 1000);
  check_range(where, "repeats", suite.repeats, 1, 100000);
  check_range(where, "samples", suite.samples, 1, 100000);
  check_range(where, "temperature", suite.sampling.temperature, 0, 100);
  for (const double t : suite.temperatures) check_range(where, "temperature", t, 0, 100);
  check_range(where, "top_k", suite.sampling.top_k, 0, 1 << 30);
  check_range(where, "top_p", suite.sampling.top_p, 0, 1);
  if (suite.sampling.top_p == 0)
    throw usage_error(fmt::format("{}: field 'top_p' is 0", where), "1 switches it off");
  check_sampler(suite, where);
  if (suite.replay && !suite.sampling.greedy())
    throw usage_error(
        fmt::format("{}: field 'replay' with temperature {}: which drafts a rejection "
                    "rule refuses on the way to a given text has no answer",
                    where, suite.sampling.temperature),
        "replay with temperature 0, or sample without --replay");
  check_batches(suite.batches, where);
  check_what_batches_leave(suite, where);
  check_servers(suite, where);
  check_range(where, "warmup_limit_s", suite.warmup_limit_s, 0, 3600);
  if (suite.limit >= 1 && suite.limit != static_cast<double>(static_cast<int64_t>(suite.limit)))
    throw usage_error(
        fmt::format("{}: field 'limit' is {}: a count, or a share below 1", where, suite.limit));
  for (const std::string& name : suite.evaluators)
    if (name != kOwnEvaluators) evaluators::find_evaluator(name);  // or throws
}

std::vector<Suite> one_per_model(const Suite& suite) {
  if (suite.models.empty()) return {suite};
  std::vector<Suite> suites;
  for (const std::string& model : suite.models) {
    suites.push_back(suite);
    suites.back().models = {model};
  }
  return suites;
}

nlohmann::json to_json(const Suite& suite) {
  nlohmann::json tasks = nlohmann::json::array();
  for (const TaskSpec& task : suite.tasks) {
    tasks.push_back({{"task", task.task}, {"limit", task.limit}, {"max_new", task.max_new}});
    // Only where it is given, so that other suites keep their keys.
    if (!task.chat_template.empty()) tasks.back()["chat_template"] = task.chat_template;
  }
  nlohmann::json json = {{"name", suite.name},
                         {"methods", suite.methods},
                         {"optional_methods", suite.optional_methods},
                         {"aa", suite.aa},
                         {"tasks", tasks},
                         {"max_new", suite.max_new},
                         {"limit", suite.limit},
                         {"max_turns", suite.max_turns},
                         {"repeats", suite.repeats},
                         {"samples", suite.samples},
                         {"temperature", suite.sampling.temperature},
                         {"top_k", suite.sampling.top_k},
                         {"top_p", suite.sampling.top_p},
                         {"seed", suite.seed},
                         {"warmup_limit_s", suite.warmup_limit_s},
                         {"order", to_string(suite.order)},
                         {"replay", suite.replay},
                         {"ignore_eos", suite.ignore_eos},
                         {"kv_cache", suite.kv_cache}};
  // Runs that draw as ever keep the keys they had.
  if (suite.sampling.sampler != engine::Sampler::kInverse)
    json["sampler"] = engine::to_string(suite.sampling.sampler);
  json["warmup"] = suite.warmup < 0 ? nlohmann::json("auto") : nlohmann::json(suite.warmup);
  json["summary"] = suite.summary;
  if (!suite.models.empty()) json["models"] = suite.models;
  if (suite.temperatures.size() > 1) json["temperature"] = suite.temperatures;
  add_endpoints({suite.endpoints, suite.baseline, suite.methods}, json);
  add_batches(suite.batches, json);
  if (!suite.evaluate)
    json["evaluators"] = "none";
  else if (suite.evaluators.empty())
    json["evaluators"] = "auto";
  else
    json["evaluators"] = suite.evaluators;
  return json;
}

const std::vector<BuiltinSuite>& builtin_suites() {
  static const std::vector<BuiltinSuite> suites = [] {
    std::vector<BuiltinSuite> list;
    for (const base::EmbeddedFile& file : embedded_suites())
      list.push_back({std::filesystem::path(file.name).stem().string(), std::string(file.text),
                      file.name.starts_with("papers/")});
    return list;
  }();
  return suites;
}

}  // namespace evalrun::runners
