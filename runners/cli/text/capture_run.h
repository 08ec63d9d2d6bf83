// evalrun generate --save-hidden DIR: its options and the run (runners/train/capture.h).
#pragma once
#include <cstdint>
#include <string>

#include "runners/cli/cli.h"

namespace evalrun::cli {

struct CaptureRunOptions {
  std::string folder;  // --save-hidden; "" = not asked for
  int parallel = 32;
  std::string residual = "auto";
  std::string answers = "self";
  int max_prompt = 0;  // 0 = not given: a prompt that does not fit is an error
  int64_t limit_tokens = 0;
  double seconds = 0;
  // Registers --save-hidden and what only makes sense with it.
  void add(CLI::App& command);
};

// Prints a summary as one line of JSON; exit code 130 after Ctrl-C.
void run_capture(Context& context, const ModelOptions& model_options, const std::string& in,
                 int max_new, const CaptureRunOptions& options);

}  // namespace evalrun::cli
