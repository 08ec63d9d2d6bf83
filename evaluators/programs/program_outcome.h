// What the end of a program means.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "evaluators/programs/language.h"
#include "evaluators/sandbox/box_request.h"

namespace evalrun::evaluators {

struct ProgramOutcome {
  // passed failed timeout memory output_limit compile_error no_tests sandbox_error
  // toolchain_missing
  std::string status, detail;
};

// First match of the precedence in docs/sandbox.md. `compile` is the separate compile step, if any;
// `run` is null when it was not reached. Passed means: exit code 0, and exactly the nonce on the
// control channel.
ProgramOutcome judge(const Language& language, const BoxResult* compile, const BoxResult* run,
                     const std::string& nonce);

// Words by which an answer could deceive a test in its own process: exit, frames, /proc, an
// always-equal __eq__, ... A reason to look, not a verdict.
bool looks_suspicious(std::string_view code);

}  // namespace evalrun::evaluators
