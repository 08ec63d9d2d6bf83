// --allow-unsafe, --time-scale, ...: the same for every command that runs generated programs.
#include <spdlog/spdlog.h>

#include "evaluators/evaluator.h"
#include "runners/cli/cli.h"

namespace evalrun::cli {

void warn_if_unsafe(const evaluators::ScoringContext& scoring) {
  if (scoring.allow_unsafe)
    spdlog::warn(
        "--allow-unsafe: where no sandbox is possible, generated programs run UNPROTECTED; their "
        "rows say \"sandbox\": \"none\"");
}

void add_scoring_options(CLI::App& app, evaluators::ScoringContext& scoring) {
  const char* group = "Running generated programs (docs/sandbox.md)";
  app.add_flag("--allow-unsafe", scoring.allow_unsafe,
               "Run them although nothing protects this machine from them")
      ->group(group);
  app.add_option("--time-scale", scoring.time_scale, "Multiplies all their time limits")
      ->check(CLI::Range(0.1, 100.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--tool-folder", scoring.read_only_folders,
                 "Folder that programs may read besides /usr, e.g. of a toolchain")
      ->check(CLI::ExistingDirectory)
      ->group(group);
  app.add_flag("--fix-go-imports", scoring.fix_go_imports,
               "Import what only a Go test uses; officially such an answer does not compile")
      ->group(group);
}

}  // namespace evalrun::cli
