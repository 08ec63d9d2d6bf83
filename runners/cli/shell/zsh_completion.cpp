#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runners/cli/shell/completion.h"

namespace evalrun::cli {
namespace {

constexpr const char* kZshHead = R"(#compdef evalrun
# zsh completion for evalrun, made by `evalrun completion zsh`.
_evalrun() {
  local command='' word
  local -a choices
  # --option=value: the value is completed as if it stood alone.
  local before=${words[CURRENT-1]}
  if [[ $PREFIX == --*=* ]]; then
    before=${PREFIX%%=*}
    compset -P '--*='
  fi
  for word in ${words[2,CURRENT-1]}; do
    case "$command $word" in
)";

// In single quotes, a colon of _describe kept from ending the word.
std::string zsh_quoted(const std::string& word, const std::string& about) {
  std::string out = "'";
  const auto add = [&](const std::string& text, bool colon) {
    for (const char c : text) {
      if (c == '\'')
        out += "'\\''";
      else if (c == '\\' || (c == ':' && colon))
        out += std::string("\\") + c;
      else
        out += c;
    }
  };
  add(word, true);
  out += ":";
  add(about, false);
  return out + "'";
}

std::string zsh_values(const CompletionWords& words) {
  if (words.words.empty()) return "_files";
  return words.list ? fmt::format("_values -s , value {}", fmt::join(words.words, " "))
                    : fmt::format("compadd -- {}", fmt::join(words.words, " "));
}

std::string zsh_value_cases(const std::vector<CommandText>& commands) {
  std::string out = "  case \"$command $before\" in\n";
  for (const CommandText& command : commands)
    for (const OptionText& option : named_options(command, commands)) {
      if (option.flag() || option.value_may_lack) continue;
      const std::string pattern = value_pattern(command, option, "|");
      out += fmt::format("    {}) {}; return ;;\n", pattern, zsh_values(completion_words(option)));
    }
  return out + "  esac\n";
}

std::string zsh_option_cases(const std::vector<CommandText>& commands) {
  std::string out = "  if [[ $PREFIX == -* ]]; then\n    case \"$command\" in\n";
  for (const CommandText& command : commands) {
    out += fmt::format("    '{}') choices=(\n", command.name());
    for (const OptionText& option : named_options(command, commands))
      for (const std::string& name : option.names)
        out += fmt::format("      {}\n", zsh_quoted(name, option.about));
    out += "    ) ;;\n";
  }
  return out + "    esac\n    _describe -o option choices\n    return\n  fi\n";
}

std::string zsh_word_cases(const std::vector<CommandText>& commands) {
  std::string out = "  case \"$command\" in\n";
  for (const CommandText& command : commands) {
    const CompletionWords words = argument_words(command);
    if (!command.below.empty()) {
      out += fmt::format("    '{}') choices=(\n", command.name());
      for (const CommandText& below : commands)
        if (below.words.size() == command.words.size() + 1 &&
            std::equal(command.words.begin(), command.words.end(), below.words.begin()))
          out += fmt::format("      {}\n", zsh_quoted(below.words.back(), below.summary));
      out += "    ); _describe command choices ;;\n";
    } else if (!words.words.empty()) {
      out += fmt::format("    '{}') compadd -- {}; _files ;;\n", command.name(),
                         fmt::join(words.words, " "));
    }
  }
  return out + "    *) _files ;;\n  esac\n";
}

}  // namespace

std::string zsh_completion(const std::vector<CommandText>& commands) {
  std::string out = kZshHead + command_cases(commands);
  out += "    esac\n  done\n";
  out += zsh_value_cases(commands) + zsh_option_cases(commands) + zsh_word_cases(commands);
  // Autoloaded, the file is the function's body; read by hand, it registers itself.
  return out +
         "}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _evalrun \"$@\"\nelse\n"
         "  compdef _evalrun evalrun\nfi\n";
}

}  // namespace evalrun::cli
