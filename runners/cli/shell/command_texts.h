// The command line as text: every command with what it takes, read from the tree that parses it.
// Man pages, completions and the list of docs/stability.md are written from this, so none of them
// can miss an option.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace evalrun::cli {

// An option, a flag or a word without a name.
struct OptionText {
  std::vector<std::string> names;  // "-m", "--model"; of a word without a name: one, bare
  std::string type;                // as --help spells it: "TEXT:{sum,geo}"; "" = a flag
  std::vector<std::string> choices;
  std::string about, group, default_value, variable;
  bool positional = false, required = false, repeats = false;
  bool value_may_lack = false;  // --self-test, or --self-test FAULT

  bool flag() const { return !positional && type.empty(); }
  const std::string& main_name() const { return names.back(); }
};

struct CommandText {
  std::vector<std::string> words;  // {"baseline", "save"}; empty: the program itself
  std::string summary, group;
  std::string about;     // what --help says below the options,
  std::string examples;  // and the lines after "Examples:" in it
  std::vector<OptionText> options;
  std::vector<std::string> below;  // names of the commands of this one

  std::string name() const;   // "baseline save"; "" for the program
  std::string above() const;  // "baseline"; not for the program
};

// The program first, then every command before those below it, as they were registered.
std::vector<CommandText> command_texts(const CLI::App& app);

// A line for each command, and for each of its options: command, names and type, separated by
// tabs.
std::string command_list(const std::vector<CommandText>& commands);

}  // namespace evalrun::cli
