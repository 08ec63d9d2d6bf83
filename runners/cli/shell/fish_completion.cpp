#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runners/cli/shell/completion.h"

namespace evalrun::cli {
namespace {

constexpr const char* kFishHead =
    R"(# fish completion for evalrun, made by `evalrun completion fish`.
function __evalrun_command
    set -l command ''
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
)";

constexpr const char* kFishTail = R"(        end
    end
    echo "$command"
end
function __evalrun_is
    set -l command (__evalrun_command)
    test "$command" = "$argv[1]"
end
complete -c evalrun -f
)";

std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

std::string fish_option_line(const CommandText& command, const OptionText& option) {
  std::string out = fmt::format("complete -c evalrun -n \"__evalrun_is '{}'\"", command.name());
  for (const std::string& name : option.names)
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  const CompletionWords words = completion_words(option);
  if (!words.words.empty())
    out += fmt::format(" -x -a '{}'", fmt::join(words.words, " "));
  else if (!option.flag() && !option.value_may_lack)
    out += " -r -F";
  return out + " -d " + fish_quoted(option.about) + "\n";
}

}  // namespace

std::string fish_completion(const std::vector<CommandText>& commands) {
  std::string out = kFishHead;
  for (const CommandText& command : commands) {
    if (command.words.empty()) continue;
    out += fmt::format("            case '{} {}'\n                set command '{}'\n",
                       command.above(), command.words.back(), command.name());
  }
  out += kFishTail;
  for (const CommandText& command : commands) {
    const std::string here =
        fmt::format("complete -c evalrun -n \"__evalrun_is '{}'\"", command.name());
    if (!command.words.empty())
      out += fmt::format("complete -c evalrun -n \"__evalrun_is '{}'\" -a {} -d {}\n",
                         command.above(), command.words.back(), fish_quoted(command.summary));
    for (const OptionText& option : command.options)
      if (!option.positional) out += fish_option_line(command, option);
    // Options of the program may stand after every command, too.
    if (!command.words.empty())
      for (const OptionText& option : commands.front().options)
        if (!option.positional && option.main_name() != "--help" &&
            option.main_name() != "--version")
          out += fish_option_line(command, option);
    const CompletionWords words = argument_words(command);
    if (!words.words.empty()) out += fmt::format("{} -a '{}'\n", here, fmt::join(words.words, " "));
    for (const OptionText& option : command.options)
      if (option.positional) {
        out += here + " -F\n";  // a word may be a file
        break;
      }
  }
  return out;
}

}  // namespace evalrun::cli
