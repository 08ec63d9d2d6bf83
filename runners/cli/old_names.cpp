#include "runners/cli/old_names.h"

#include <algorithm>

namespace evalrun::cli {
namespace {

struct OldName {
  std::vector<std::string> command;  // words; empty = every command
  std::string before, now;
};

// In this order: `generate --save-hidden DIR` first becomes a command of its own.
const std::vector<OldName>& old_names() {
  static const std::vector<OldName> names = {
      {{}, "--bits", "--reproducible"},           {{"capture"}, "--save-hidden", "--out"},
      {{"capture"}, "--parallel", "--jobs"},      {{"capture"}, "--seconds", "--max-time"},
      {{"check"}, "--alpha", "--significance"},   {{"corpus", "build"}, "-o", "--out"},
      {{"doctor"}, "--workers", "--jobs"},        {{"report"}, "--by", "--split-by"},
      {{"report"}, "--group-by", "--columns-by"}, {{"report"}, "--metric", "--estimator"},
      {{"run"}, "--score-workers", "--jobs"},     {{"score"}, "--dataset", "--task"},
      {{"score"}, "--workers", "--jobs"},         {{"tune"}, "--seconds", "--max-time"},
  };
  return names;
}

bool is_option(const std::string& word, const std::string& name) {
  return word == name || word.starts_with(name + "=");
}

// Whether the words that name commands begin with `command`. Options may stand between them.
bool is_command(const std::vector<std::string>& words, const std::vector<std::string>& command) {
  size_t found = 0;
  for (const std::string& word : words) {
    if (found == command.size()) break;
    if (word == command[found]) ++found;
  }
  return found == command.size();
}

}  // namespace

std::vector<std::string> with_new_names(std::vector<std::string> words) {
  const auto command = std::find(words.begin(), words.end(), "generate");
  if (command != words.end() && std::any_of(command, words.end(), [](const std::string& word) {
        return is_option(word, "--save-hidden");
      }))
    *command = "capture";
  for (const OldName& name : old_names()) {
    if (!is_command(words, name.command)) continue;
    const bool letter = name.before.size() == 2;  // -oFILE
    for (std::string& word : words) {
      if (is_option(word, name.before))
        word = name.now + word.substr(name.before.size());
      else if (letter && word.starts_with(name.before))
        word = name.now + "=" + word.substr(name.before.size());
    }
  }
  return words;
}

}  // namespace evalrun::cli
