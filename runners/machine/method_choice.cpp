#include "runners/machine/method_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "engine/model/model.h"
#include "runners/machine/build_info.h"
#include "runners/machine/environment.h"
#include "runners/machine/gpu_state.h"

namespace evalrun::runners {
namespace {

constexpr int kChoicesVersion = 1;  // of the file
constexpr size_t kMostChoices = 256;
constexpr size_t kShownLength = 40;  // of a value in a message; hashes are longer

std::string machine_of(const std::string& device) {
  std::map<std::string, std::string> environment = capture_environment();
  environment.merge(gpu_environment(device));
  std::string machine =
      fmt::format("{}, {} cores", environment["cpu"], environment["cores_allowed"]);
  if (const auto gpu = environment.find("gpu"); gpu != environment.end())
    machine += ", " + gpu->second;
  return machine;
}

nlohmann::ordered_json choice_json(const MethodChoice& c) {
  return {
      {"key", c.key},         {"method", c.method}, {"files", c.files}, {"confirmed", c.confirmed},
      {"speedup", c.speedup}, {"lo", c.lo},         {"hi", c.hi},       {"prompts", c.prompts},
      {"chosen", c.chosen}};
}

MethodChoice choice_from(const nlohmann::json& json, const std::string& file, size_t place) {
  base::ObjectReader reader(json, file, fmt::format("choices[{}]", place));
  using Texts = std::map<std::string, std::string>;
  MethodChoice c;
  c.key = reader.required<Texts>("key");
  c.method = reader.required<std::string>("method");
  c.files = reader.required<Texts>("files");
  c.confirmed = reader.required<std::string>("confirmed");
  c.speedup = reader.required<double>("speedup");
  c.lo = reader.required<double>("lo");
  c.hi = reader.required<double>("hi");
  c.prompts = reader.required<int>("prompts");
  c.chosen = reader.required<std::string>("chosen");
  reader.finish();
  return c;
}

std::string shown_value(const ChoiceKey& key, const std::string& name) {
  const auto found = key.find(name);
  if (found == key.end() || found->second.empty()) return "none";
  return found->second.size() > kShownLength ? found->second.substr(0, kShownLength) + "..."
                                             : found->second;
}

// Names of the fields in which two keys differ.
std::vector<std::string> differences_of(const ChoiceKey& a, const ChoiceKey& b) {
  std::vector<std::string> names;
  for (const auto& [name, value] : a)
    if (const auto other = b.find(name); other == b.end() || other->second != value)
      names.push_back(name);
  for (const auto& [name, value] : b)
    if (!a.contains(name)) names.push_back(name);
  return names;
}

}  // namespace

ChoiceKey choice_key(const engine::Model& target, const engine::Model* draft,
                     const engine::SessionOptions& session, const std::string& prompts) {
  if (target.hash().empty() || (draft != nullptr && draft->hash().empty()))
    throw base::usage_error(
        fmt::format("{} has no hash of its weights, so that no choice can be kept for it",
                    target.hash().empty() ? target.config().name : draft->config().name),
        "load it from a file");
  const engine::SessionOptions options = engine::resolve_options(session, target.format());
  const BuildInfo& build = build_info();
  std::vector<std::string> variables;
  for (const auto& [name, value] : figure_variables())
    variables.push_back(fmt::format("{}={}", name, value));
  std::string formats(engine::name_of(target.format()));
  if (draft != nullptr) formats += fmt::format(", draft {}", engine::name_of(draft->format()));
  return {{"model", target.hash()},
          {"draft model", draft == nullptr ? "" : draft->hash()},
          {"weight format", formats},
          {"device", options.device},
          {"instruction set", options.isa + (options.one_isa ? " one-isa" : "")},
          {"threads", std::to_string(options.n_threads)},
          {"KV cache", options.kv_cache ? options.kv_dtype : "none"},
          {"machine", machine_of(options.device)},
          {"variables", fmt::format("{}", fmt::join(variables, " "))},
          {"build", fmt::format("{} {}", build.version, build.id)},
          {"prompts", prompts}};
}

std::string method_choices_path() {
  const std::filesystem::path home = base::home_folder();
  return home.empty() ? "" : (home / "method-choices.json").string();
}

std::vector<MethodChoice> load_choices(const std::string& file) {
  std::error_code ignored;
  if (file.empty() || !std::filesystem::exists(file, ignored)) return {};
  const nlohmann::json json = base::parse_json(base::read_file(file), file);
  base::ObjectReader reader(json, file, "");
  if (const int version = reader.required<int>("version"); version != kChoicesVersion)
    throw base::data_error(file, "version", fmt::format("is {}, not {}", version, kChoicesVersion),
                           "delete the file, and choose again: evalrun tune method");
  const nlohmann::json* list = reader.raw("choices");
  if (list == nullptr || !list->is_array())
    throw base::data_error(file, "choices", "is missing, or no list",
                           "delete the file, and choose again: evalrun tune method");
  std::vector<MethodChoice> choices;
  for (const nlohmann::json& one : *list) choices.push_back(choice_from(one, file, choices.size()));
  return choices;
}

void store_choice(const std::string& file, const MethodChoice& choice) {
  EVALRUN_CHECK(!file.empty() && !choice.method.empty(), "a choice without file or method");
  std::vector<MethodChoice> choices;
  try {
    choices = load_choices(file);
  } catch (const base::Error&) {  // broken: written anew
  }
  std::erase_if(choices, [&](const MethodChoice& c) { return c.key == choice.key; });
  choices.push_back(choice);
  std::stable_sort(
      choices.begin(), choices.end(),
      [](const MethodChoice& a, const MethodChoice& b) { return a.chosen < b.chosen; });
  if (choices.size() > kMostChoices) choices.erase(choices.begin());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MethodChoice& c : choices) list.push_back(choice_json(c));
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  const nlohmann::ordered_json document = {{"version", kChoicesVersion}, {"choices", list}};
  base::write_file_atomic(file, document.dump(1) + "\n");
}

FoundChoice find_choice(const std::vector<MethodChoice>& choices, const ChoiceKey& key) {
  const MethodChoice* nearest = nullptr;
  std::vector<std::string> differing;
  for (const MethodChoice& choice : choices) {
    std::vector<std::string> names = differences_of(key, choice.key);
    if (names.empty()) return {choice, ""};
    if (nearest == nullptr || names.size() <= differing.size())  // of equals the newest
      nearest = &choice, differing = std::move(names);
  }
  if (nearest == nullptr) return {std::nullopt, "nothing was chosen yet"};
  std::vector<std::string> texts;
  for (const std::string& name : differing)
    texts.push_back(fmt::format("another {} ({}, now {})", name, shown_value(nearest->key, name),
                                shown_value(key, name)));
  return {std::nullopt, fmt::format("the nearest choice, {} of {}, is for {}", nearest->method,
                                    nearest->chosen, fmt::join(texts, ", "))};
}

}  // namespace evalrun::runners
