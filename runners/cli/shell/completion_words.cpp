#include <algorithm>
#include <set>

#include "datasets/dataset.h"
#include "engine/devices.h"
#include "engine/model/shapes.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "evaluators/evaluator.h"
#include "methods/registration.h"
#include "runners/cli/cli.h"
#include "runners/cli/shell/completion.h"
#include "runners/plan/method_lists.h"
#include "runners/plan/suite.h"

namespace evalrun::cli {
namespace {

template <typename Registry>
std::vector<std::string> names_of(const Registry& registry) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : registry.entries()) names.push_back(name);
  return names;
}

std::vector<std::string> method_and_list_names() {
  std::vector<std::string> names = names_of(methods::method_registry());
  for (const runners::MethodList& list : runners::method_lists()) names.push_back(list.name);
  return names;
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const runners::BuiltinSuite& suite : runners::builtin_suites()) names.push_back(suite.name);
  return names;
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const IsaInfo& isa : known_isas()) names.push_back(isa.name);
  return names;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names = {kDefaultDtype};
  for (const engine::WeightFormatSpec& format : engine::weight_formats())
    names.emplace_back(format.name);
  return names;
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const engine::Shape& shape : engine::known_shapes()) names.push_back(shape.name);
  return names;
}

}  // namespace

CompletionWords completion_words(const OptionText& option) {
  if (!option.choices.empty()) return {option.choices, option.repeats};
  const std::string& name = option.main_name();
  // What is compiled in needs no question to the program while somebody waits for a key.
  if (name == "--methods") return {method_and_list_names(), true};
  if (name == "--method") return {names_of(methods::method_registry()), false};
  if (name == "--tasks") return {names_of(datasets::dataset_registry()), true};
  if (name == "--task") return {names_of(datasets::dataset_registry()), false};
  if (name == "--evaluators") return {names_of(evaluators::evaluator_registry()), true};
  if (name == "--suite" || name == "suite") return {suite_names(), false};
  if (name == "--isa") return {isa_names(), option.repeats};
  if (name == "--dtype") return {format_names(), option.repeats};
  if (name == "--shape") return {shape_names(), false};
  if (name == "--kv-dtype") return {engine::kv_dtypes(), option.repeats};
  if (name == "--device") return {{"cpu", "cuda"}, option.repeats};
  if (name == "--chat-template") return {engine::chat_template_names(), false};
  return {};
}

std::string command_cases(const std::vector<CommandText>& commands) {
  std::string out;
  for (const CommandText& command : commands)
    if (!command.words.empty())
      out += fmt::format("      '{} {}') command='{}' ;;\n", command.above(), command.words.back(),
                         command.name());
  return out;
}

std::string value_pattern(const CommandText& command, const OptionText& option,
                          std::string_view separator) {
  std::vector<std::string> patterns;
  for (const std::string& name : option.names)
    patterns.push_back(fmt::format("'{} {}'", command.name(), name));
  return fmt::format("{}", fmt::join(patterns, separator));
}

std::vector<OptionText> named_options(const CommandText& command,
                                      const std::vector<CommandText>& all) {
  std::vector<OptionText> options;
  std::set<std::string> seen;
  for (const CommandText* of : {&command, &all.front()})
    for (const OptionText& option : of->options)
      if (!option.positional && seen.insert(option.main_name()).second) options.push_back(option);
  return options;
}

CompletionWords argument_words(const CommandText& command) {
  for (const OptionText& option : command.options)
    if (option.positional)
      if (CompletionWords words = completion_words(option); !words.words.empty()) return words;
  return {};
}

}  // namespace evalrun::cli
