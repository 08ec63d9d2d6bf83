#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runners/cli/shell/completion.h"

namespace evalrun::cli {
namespace {

// What stands before the cursor decides: an option that takes a value, or else the command.
constexpr const char* kBashHead =
    R"(# bash completion for evalrun, made by `evalrun completion bash`.
_evalrun() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command='' words='' i
  # --option=value comes as three words.
  if [[ $cur == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 1]} cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${COMP_WORDS[i]}" in
)";

constexpr const char* kBashTail = R"(
  if [[ $words == *,LIST ]]; then
    # The last item of a list; those before it stay.
    local before=
    [[ $cur == *,* ]] && before=${cur%,*},
    words=${words%,LIST}
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "${cur##*,}")
    compopt -o nospace
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  fi
} && complete -o default -F _evalrun evalrun
)";

std::string bash_words(const CompletionWords& words) {
  return fmt::format("{}{}", fmt::join(words.words, " "), words.list ? ",LIST" : "");
}

// Values of options: "COMMAND OPTION" to words; no words mean that the shell offers files.
std::string bash_value_cases(const std::vector<CommandText>& commands) {
  std::string out = "  case \"$command $prev\" in\n";
  for (const CommandText& command : commands)
    for (const OptionText& option : named_options(command, commands)) {
      if (option.flag() || option.value_may_lack) continue;
      const std::string pattern = value_pattern(command, option, " | ");
      const CompletionWords words = completion_words(option);
      out += words.words.empty()
                 ? fmt::format("    {}) return ;;\n", pattern)
                 : fmt::format("    {}) words='{}' ;;\n", pattern, bash_words(words));
    }
  return out + "  esac\n";
}

std::string bash_word_cases(const std::vector<CommandText>& commands) {
  std::string out = "  [[ -z $words ]] && case \"$command:$cur\" in\n";
  for (const CommandText& command : commands) {
    std::vector<std::string> names;
    for (const OptionText& option : named_options(command, commands))
      names.insert(names.end(), option.names.begin(), option.names.end());
    out += fmt::format("    '{}:-'*) words='{}' ;;\n", command.name(), fmt::join(names, " "));
    CompletionWords words = argument_words(command);
    if (!command.below.empty()) words = {command.below, false};
    if (!words.words.empty())
      out += fmt::format("    '{}:'*) words='{}' ;;\n", command.name(), bash_words(words));
  }
  return out + "  esac\n";
}

}  // namespace

std::string bash_completion(const std::vector<CommandText>& commands) {
  std::string out = kBashHead + command_cases(commands);
  out += "    esac\n  done\n";
  out += bash_value_cases(commands) + bash_word_cases(commands);
  return out + (kBashTail + 1);  // its first line is empty
}

}  // namespace evalrun::cli
