// Scripts that complete command lines of evalrun, for three shells.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runners/cli/shell/command_texts.h"

namespace evalrun::cli {

// Words that an option or an unnamed word may be; empty where it may be anything.
struct CompletionWords {
  std::vector<std::string> words;
  bool list = false;  // several, with commas
};
CompletionWords completion_words(const OptionText& option);

// The command's options, and after them those of the program.
std::vector<OptionText> named_options(const CommandText& command,
                                      const std::vector<CommandText>& all);
// The first unnamed word of the command that has completion words; no words where there is none.
CompletionWords argument_words(const CommandText& command);

// What bash and zsh have in common: the cases of a `case` over "COMMAND WORD" that follow the words
// to the command they name; and the pattern of one over "COMMAND OPTION" for the option's names.
std::string command_cases(const std::vector<CommandText>& commands);
std::string value_pattern(const CommandText& command, const OptionText& option,
                          std::string_view separator);

std::string bash_completion(const std::vector<CommandText>& commands);
std::string zsh_completion(const std::vector<CommandText>& commands);
std::string fish_completion(const std::vector<CommandText>& commands);

}  // namespace evalrun::cli
