#include "runners/cli/shell/command_texts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <regex>

#include "engine/base/text.h"

namespace evalrun::cli {
namespace {

std::vector<std::string> split_list(const std::string& text, const std::string& separator) {
  std::vector<std::string> items;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != text.npos; begin = end + separator.size())
    items.push_back(text.substr(begin, end - begin));
  items.push_back(text.substr(begin));
  return items;
}

// Of CLI::IsMember in the type, or a description that is nothing but a list of words.
std::vector<std::string> choices_of(const std::string& type, const std::string& about) {
  static const std::regex member(R"(\{([^{}]+)\})"), list("[a-z_-]+(, [a-z_-]+)+");
  std::smatch match;
  if (std::regex_search(type, match, member)) return split_list(match[1], ",");
  if (!type.empty() && std::regex_match(about, list)) return split_list(about, ", ");
  return {};
}

OptionText option_text(const CLI::Option& option) {
  OptionText text;
  text.positional = option.get_positional();
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (text.positional) text.names = {option.get_name(true)};
  text.about = option.get_description();
  text.group = option.get_group() == "Options" ? "" : option.get_group();
  text.variable = option.get_envname();
  text.required = option.get_required();
  text.type = option.get_type_name();
  if (text.type.empty() && option.get_option_text().empty() && !text.positional) return text;
  text.value_may_lack = !text.positional && option.get_items_expected_min() == 0;
  if (text.type.empty()) text.type = "VALUE";
  if (!option.get_option_text().empty())
    text.type = std::string(base::trim(option.get_option_text()));
  if (text.type.starts_with('[') && text.type.ends_with(']'))
    text.type = text.type.substr(1, text.type.size() - 2);
  text.choices = choices_of(text.type, text.about);
  text.default_value = option.get_default_str();
  text.repeats = option.get_items_expected_max() > 1;
  return text;
}

// The block of indented lines after "Examples:" goes to `examples`, all else to `about`.
void split_footer(const std::string& footer, CommandText& command) {
  bool examples = false;
  for (const std::string& line : base::split(footer, '\n')) {
    if (line == "Examples:")
      examples = true;
    else if (examples && line.starts_with("  "))
      command.examples += line.substr(2) + "\n";
    else
      command.about += line + "\n", examples = false;
  }
  command.about = base::trim(command.about);
}

void walk_commands(const CLI::App& app, const std::vector<std::string>& words,
                   std::vector<CommandText>& commands) {
  CommandText command;
  command.words = words;
  command.summary = app.get_description();
  command.group = app.get_group();
  split_footer(app.get_footer(), command);
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) command.options.push_back(option_text(*option));
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : below) command.below.push_back(sub->get_name());
  commands.push_back(std::move(command));
  for (const CLI::App* sub : below) {
    std::vector<std::string> longer = words;
    longer.push_back(sub->get_name());
    walk_commands(*sub, longer, commands);
  }
}

}  // namespace

std::string CommandText::name() const { return fmt::format("{}", fmt::join(words, " ")); }

std::string CommandText::above() const {
  return fmt::format("{}", fmt::join(words.begin(), words.end() - 1, " "));
}

std::vector<CommandText> command_texts(const CLI::App& app) {
  std::vector<CommandText> commands;
  walk_commands(app, {}, commands);
  return commands;
}

std::string command_list(const std::vector<CommandText>& commands) {
  std::string text;
  for (const CommandText& command : commands) {
    const std::string name = command.words.empty() ? "evalrun" : command.name();
    text += name + "\n";
    for (const OptionText& option : command.options)
      text += fmt::format("{}\t{}\t{}{}\n", name, fmt::join(option.names, ","),
                          option.type.empty() ? "flag" : option.type,
                          option.required ? " REQUIRED" : "");
  }
  return text;
}

}  // namespace evalrun::cli
