#include "runners/cli/given_options.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace evalrun::cli {
namespace {

// The commands on the command line, outermost first.
std::vector<const CLI::App*> parsed(const CLI::App& app) {
  std::vector<const CLI::App*> all = {&app};
  for (const CLI::App* command : app.get_subcommands()) {
    const std::vector<const CLI::App*> below = parsed(*command);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

// A variable sets an option without naming it.
bool by_variable(const CLI::Option& option) {
  const std::string name = option.get_envname();
  const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
  return value != nullptr && option.results() == std::vector<std::string>{value};
}

// Whether `value` stands in `text` as a word of its own.
bool mentions(std::string_view text, std::string_view value) {
  const auto inside = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = text.find(value); at != text.npos; at = text.find(value, at + 1))
    if (!inside(at - 1) && !inside(at + value.size())) return true;
  return false;
}

// Numbers and single letters occur in many messages that do not mean them.
bool is_telling(const std::string& value) {
  return value.size() > 1 && !std::all_of(value.begin(), value.end(), [](unsigned char c) {
           return std::isdigit(c) != 0 || c == '.' || c == '-' || c == '%';
         });
}

}  // namespace

void refuse_given(const CLI::App& command, const std::vector<std::string>& names,
                  std::string_view why) {
  for (const std::string& name : names) {
    const CLI::Option* option = command.get_option(name);
    if (option->count() > 0 && !by_variable(*option))
      throw base::usage_error(
          fmt::format("{} is not for {}", option->get_name(), why),
          fmt::format("leave it out; see `evalrun {} --help`", command.get_name()));
  }
}

void check_format(const CLI::App& app, const GlobalOptions& global) {
  if (!global.json) return;
  for (const CLI::App* command : parsed(app)) {
    const CLI::Option* format = command->get_option_no_throw("--format");
    if (format != nullptr && format->count() > 0 && format->results().back() != "json")
      throw base::usage_error(
          fmt::format("--json and --format {} contradict each other", format->results().back()),
          "give one of them");
  }
}

std::string with_option(const CLI::App& app, const std::string& message) {
  std::string quoted, found;
  for (const CLI::App* command : parsed(app))
    for (const CLI::Option* option : command->get_options()) {
      const std::string name = option->get_name();
      if (option->count() == 0 || !name.starts_with("-") || option->get_expected_max() == 0)
        continue;
      if (message.find(name) != message.npos) return message;
      for (const std::string& value : option->results()) {
        if (message.find("'" + value + "'") != message.npos)
          quoted = name;
        else if (found.empty() && is_telling(value) && mentions(message, value))
          found = name;
      }
    }
  // What an error puts in quotes is what it is about.
  const std::string& name = quoted.empty() ? found : quoted;
  return name.empty() ? message : fmt::format("{} ({})", message, name);
}

}  // namespace evalrun::cli
