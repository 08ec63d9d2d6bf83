#include "runners/cli/shell/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::cli {
namespace {

// docs/exit-codes.md in a line each.
constexpr std::pair<base::ExitCode, const char*> kExitCodes[] = {
    {base::ExitCode::kOk, "done; of `evalrun check`: no regression"},
    {base::ExitCode::kRegression, "a confirmed slowdown"},
    {base::ExitCode::kUsage, "wrong command line, suite or parameter"},
    {base::ExitCode::kNoBaseline, "the baseline is missing, or not comparable"},
    {base::ExitCode::kInconclusive, "not enough evidence"},
    {base::ExitCode::kCorrectness, "outputs differ where they must not"},
    {base::ExitCode::kEnvironment, "the machine is unfit to measure, or out of memory"},
    {base::ExitCode::kData, "a model, data or result file is missing, broken or out of reach"},
    {base::ExitCode::kDevice, "a GPU failed in the middle of the work; results so far are kept"},
    {base::ExitCode::kInterrupted, "interrupted; results so far are kept"},
};

// Text as roff; what stands between backticks is bold. A line is never taken for a request.
std::string roff(std::string_view text) {
  std::string out;
  bool bold = false, line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '`':
        bold = !bold;
        out += bold ? "\\fB" : "\\fR";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

// Paragraphs; indented lines keep their breaks.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool open = false;
  for (const std::string& line : base::split(text, '\n')) {
    if (line.empty()) {
      open = false;
      continue;
    }
    if (!open)
      out += ".PP\n";
    else if (line.starts_with(' '))
      out += ".br\n";
    open = true;
    out += roff(base::trim(line)) + "\n";
  }
  return out;
}

std::string in_small(std::string text) {
  // "A/B" and "MT-Bench" stay.
  if (text.size() > 1 && std::isupper(static_cast<unsigned char>(text[1])) == 0)
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

// "INT:INT in [0 - 20]" as "INT in [0 - 20]", "TEXT:{sum,geo}" as "sum|geo".
std::string value_text(const OptionText& option) {
  if (option.type.find('{') != std::string::npos)
    return fmt::format("{}", fmt::join(option.choices, "|"));
  return option.type.substr(option.type.find(':') + 1);
}

std::string option_entry(const OptionText& option) {
  std::string out = ".TP\n";
  if (option.positional) {
    out += italic(option.names[0]);
  } else {
    for (const std::string& name : option.names)
      out += (&name == &option.names[0] ? "" : ", ") + bold(name);
    if (!option.type.empty())
      out += option.value_may_lack ? " [" + italic(value_text(option)) + "]"
                                   : " " + italic(value_text(option));
  }
  out += "\n" + roff(option.about.empty() ? "No description." : option.about);
  if (!option.default_value.empty())
    out += fmt::format(" (default: {})", roff(option.default_value));
  if (option.repeats) out += "; may be repeated";
  if (option.required) out += "; required";
  if (!option.variable.empty()) out += fmt::format("; also {}", bold(option.variable));
  return out + "\n";
}

std::string synopsis(const CommandText& command) {
  std::string out = bold(command.words.empty() ? "evalrun" : "evalrun " + command.name());
  out += " [" + italic("options") + "]";
  for (const OptionText& option : command.options) {
    if (!option.positional) continue;
    const std::string word = italic(option.names[0]) + (option.repeats ? " ..." : "");
    out += option.required ? " " + word : " [" + word + "]";
  }
  if (!command.below.empty()) out += " " + italic("command") + " ...";
  return out + "\n";
}

const CommandText& page_command(const std::vector<CommandText>& all,
                                const std::vector<std::string>& words) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const CommandText& c) { return c.words == words; });
  EVALRUN_CHECK(found != all.end(), "no command {}", fmt::join(words, " "));
  return *found;
}

std::string commands_section(const CommandText& command, const std::vector<CommandText>& all) {
  std::string out = ".SH COMMANDS\n", group;
  for (const std::string& name : command.below) {
    std::vector<std::string> words = command.words;
    words.push_back(name);
    const CommandText& below = page_command(all, words);
    if (below.group != group && below.group != "Subcommands")
      out += fmt::format(".SS {}\n", roff(below.group));
    group = below.group;
    out += fmt::format(".TP\n{}\n{}; see {}(1)\n", bold(name), roff(below.summary),
                       bold(page_name(below)));
  }
  return out;
}

// Words without a name first, then groups in the order in which they were registered.
std::string options_section(const CommandText& command) {
  std::vector<std::string> groups = {""};
  for (const OptionText& option : command.options)
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  std::string out = ".SH OPTIONS\n";
  for (const OptionText& option : command.options)
    if (option.positional) out += option_entry(option);
  for (const std::string& group : groups) {
    if (!group.empty()) out += fmt::format(".SS {}\n", roff(group));
    for (const OptionText& option : command.options)
      if (!option.positional && option.group == group) out += option_entry(option);
  }
  if (!command.words.empty())
    out += ".PP\nOptions of every command, such as " + bold("--db") + " and " + bold("--json") +
           ": see " + bold("evalrun") + "(1).\n";
  return out;
}

std::string environment_section(const CommandText& command) {
  std::string out;
  for (const OptionText& option : command.options)
    if (!option.variable.empty())
      out += fmt::format(".TP\n{}\nAs {}.\n", bold(option.variable), bold(option.main_name()));
  if (!command.words.empty()) return out.empty() ? out : ".SH ENVIRONMENT\n" + out;
  return ".SH ENVIRONMENT\n" + out + ".PP\nAll variables: docs/environment.md, in " +
         italic("share/doc/evalrun") + " of an installation.\n";
}

std::string see_also(const CommandText& command, const std::vector<CommandText>& all) {
  std::vector<std::string> pages;
  std::vector<std::string> above = command.words;
  while (!above.empty()) {
    above.pop_back();
    pages.push_back(page_name(page_command(all, above)));
  }
  for (const std::string& name : command.below) {
    std::vector<std::string> words = command.words;
    words.push_back(name);
    pages.push_back(page_name(page_command(all, words)));
  }
  std::string out = ".SH SEE ALSO\n";
  for (const std::string& page : pages)
    out += fmt::format("{}(1){}\n", bold(page), &page == &pages.back() ? "" : ",");
  return out;
}

}  // namespace

std::string page_name(const CommandText& command) {
  return command.words.empty() ? "evalrun"
                               : fmt::format("evalrun-{}", fmt::join(command.words, "-"));
}

std::string man_page(const CommandText& command, const std::vector<CommandText>& all,
                     std::string_view version) {
  const std::string page = page_name(command);
  std::string title = page;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string summary = command.summary;
  if (command.words.empty()) summary = summary.substr(summary.find(": ") + 2);
  std::string out = ".\\\" Made by `evalrun man`; do not edit.\n";
  out += fmt::format(".TH \"{}\" 1 \"\" \"evalrun {}\" \"evalrun\"\n", title, version);
  out += fmt::format(".SH NAME\n{} \\- {}\n", roff(page), roff(in_small(summary)));
  out += ".SH SYNOPSIS\n" + synopsis(command);
  out += ".SH DESCRIPTION\n" +
         paragraphs(command.summary + (command.summary.ends_with('?') ? "" : ".")) +
         paragraphs(command.about);
  if (!command.below.empty()) out += commands_section(command, all);
  out += options_section(command);
  if (!command.examples.empty()) out += ".SH EXAMPLES\n.nf\n" + roff(command.examples) + ".fi\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes)
    out +=
        fmt::format(".TP\n{}\n{}\n", bold(std::to_string(static_cast<int>(code))), roff(meaning));
  out += environment_section(command);
  return out + see_also(command, all);
}

}  // namespace evalrun::cli
