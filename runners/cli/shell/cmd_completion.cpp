// evalrun completion SHELL: the script that a shell completes command lines with.
#include <memory>

#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/shell/completion.h"

namespace evalrun::cli {

void add_completion_command(CLI::App& app, Context&) {
  auto* command = app.add_subcommand("completion", "Completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Which shell")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required();
  command->footer(
      "The package installs all three. From a build folder:\n\n"
      "Examples:\n"
      "  source <(evalrun completion bash)\n"
      "  evalrun completion zsh > ~/.zfunc/_evalrun\n"
      "  evalrun completion fish > ~/.config/fish/completions/evalrun.fish");
  command->callback([shell, &app] {
    const std::vector<CommandText> commands = command_texts(app);
    std::string script = *shell == "bash"  ? bash_completion(commands)
                         : *shell == "zsh" ? zsh_completion(commands)
                                           : fish_completion(commands);
    script.pop_back();  // print_line ends the last line
    print_line(script);
  });
}

}  // namespace evalrun::cli
