#include "runners/plan/auto_method.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "methods/registration.h"

namespace evalrun::runners {
namespace {

std::string hash_of_prompts(const datasets::LoadedDataset& set) {
  nlohmann::json all = nlohmann::json::array();
  for (const datasets::Prompt& prompt : set.prompts)
    all.push_back({prompt.id, prompt.turns, prompt.chat, prompt.chat_template});
  return base::sha256_hex(all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string tune_line(const PlanRequest& request) {
  std::vector<std::string> tasks;
  for (const TaskSpec& task : request.suite.tasks) tasks.push_back(task.task);
  return fmt::format("choose first: evalrun tune method --tasks {}, with the same model options",
                     fmt::join(tasks, ","));
}

void check_auto_holds(const Suite& suite) {
  if (!suite.batches.one())
    throw base::usage_error(
        fmt::format("method auto with batches of {}: it is chosen one request at a time",
                    suite.batches.largest()),
        "name methods, or measure with --batch 1");
  if (!suite.sampling.greedy())
    throw base::usage_error("method auto with a temperature: it is chosen in greedy decoding",
                            "name methods, or measure with --temperature 0");
}

}  // namespace

ChoiceKey choice_key_of(const PlanRequest& request) {
  std::vector<std::string> sets;
  for (const TaskSpec& task : request.suite.tasks) {
    const datasets::LoadedDataset set = datasets::load_dataset(task.task, request.data_root);
    // Of a file of one's own the kind alone: it is the same wherever it lies.
    const std::string& name = set.info.name;
    sets.push_back(fmt::format("{} {}", name.substr(0, name.find(':')), hash_of_prompts(set)));
  }
  engine::SessionOptions session = request.session;
  session.kv_cache = request.suite.kv_cache;
  return choice_key(*request.target, request.draft.get(), session,
                    fmt::format("{}", fmt::join(sets, ", ")));
}

std::map<std::string, std::string> choice_files(const PlanRequest& request,
                                                const std::string& method) {
  const methods::MethodSpec spec = methods::parse_method(method);
  if (!spec.info->files) return {};
  return spec.info->files(spec.params, {request.target, request.session, request.draft});
}

std::string resolve_auto(const PlanRequest& request, const std::string& file) {
  check_auto_holds(request.suite);
  const FoundChoice found = find_choice(load_choices(file), choice_key_of(request));
  if (!found.choice)
    throw base::usage_error(
        fmt::format("method auto: no stored choice for this model, machine and data: {}",
                    found.why),
        tune_line(request));
  const std::string method = methods::parse_method(found.choice->method).canonical();
  if (choice_files(request, method) != found.choice->files)
    throw base::usage_error(
        fmt::format("method auto: {} was chosen on {} with other weights or files than it has now",
                    found.choice->method, found.choice->chosen),
        tune_line(request));
  return method;
}

PlanRequest without_auto(const PlanRequest& request, std::string& chosen) {
  PlanRequest resolved = request;
  std::vector<std::string>& methods = resolved.suite.methods;
  const auto place = std::find(methods.begin(), methods.end(), kAutoMethod);
  if (place == methods.end()) return resolved;
  chosen = resolve_auto(request, method_choices_path());
  if (std::find(methods.begin(), methods.end(), chosen) == methods.end())
    *place = chosen;
  else
    methods.erase(place);
  std::erase(resolved.suite.optional_methods, chosen);
  return resolved;
}

}  // namespace evalrun::runners
