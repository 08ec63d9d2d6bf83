// evalrun man: the manual pages, made from the command line itself.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "engine/base/text.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/shell/man_page.h"
#include "runners/machine/build_info.h"

namespace evalrun::cli {
namespace {

struct ManArguments {
  std::vector<std::string> command;
  std::string folder;
  bool list = false;
};

const CommandText& find_command(const std::vector<CommandText>& all,
                                const std::vector<std::string>& words) {
  for (const CommandText& command : all)
    if (command.words == words) return command;
  std::vector<std::string> names;
  for (const CommandText& command : all)
    if (!command.words.empty()) names.push_back(command.name());
  const std::string unknown = fmt::format("{}", fmt::join(words, " "));
  throw base::usage_error(fmt::format("unknown command '{}'", unknown),
                          base::suggest(unknown, names));
}

// PAGE.1 for every command.
void write_pages(const std::vector<CommandText>& all, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw base::data_error(folder, "", "cannot be made: " + error.message(),
                           "--all takes the folder that the pages go to");
  for (const CommandText& command : all)
    base::write_file_atomic((std::filesystem::path(folder) / (page_name(command) + ".1")).string(),
                            man_page(command, all, runners::build_info().version));
}

void run_man(const ManArguments& options, const CLI::App& app) {
  const std::vector<CommandText> all = command_texts(app);
  if (!options.folder.empty()) return write_pages(all, options.folder);
  std::string text = options.list ? command_list(all)
                                  : man_page(find_command(all, options.command), all,
                                             runners::build_info().version);
  text.pop_back();  // print_line ends the last line
  print_line(text);
}

}  // namespace

void add_man_command(CLI::App& app, Context&) {
  auto* command = app.add_subcommand("man", "Manual page of a command, for man(1)");
  auto options = std::make_shared<ManArguments>();
  auto* words = command->add_option("command", options->command,
                                    "Words of the command, e.g. baseline save (default: evalrun)");
  auto* folder = command
                     ->add_option("--all", options->folder,
                                  "Folder that every page is written to: evalrun-run.1, ...")
                     ->type_name("DIR")
                     ->excludes(words);
  command
      ->add_flag("--list", options->list,
                 "Instead of a page: every command and option with its type, one a line")
      ->excludes(words)
      ->excludes(folder);
  command->footer(
      "Examples:\n"
      "  evalrun man run | man -l -\n"
      "  evalrun man --all ~/.local/share/man/man1\n"
      "  evalrun man --list > options.txt");
  command->callback([options, &app] { run_man(*options, app); });
}

}  // namespace evalrun::cli
