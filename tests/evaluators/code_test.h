// What tests of running programs share: skips with reasons, a place for prepared toolchains.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "evaluators/programs/program_runner.h"
#include "evaluators/programs/self_check.h"

namespace evalrun::tests {

// Prepared toolchains are kept in the build folder, results of programs are not reused.
inline evaluators::ScoringContext test_context() {
  evaluators::ScoringContext context;
  context.cache_folder = EVALRUN_BINARY_DIR "/code-cache";
  context.reuse_results = false;
  return context;
}

// Why programs of `language` cannot be run here; "" when they can.
inline std::string why_not(const std::string& language) {
  try {
    evaluators::shared_sandbox(test_context());
  } catch (const base::Error& error) {
    return error.message();
  }
  const auto& toolchain = evaluators::toolchain_of(evaluators::languages().get(language));
  std::string packages;
  for (const std::string& package : toolchain.packages) packages += " " + package;
  return packages.empty() ? "" : language + ": missing Debian packages:" + packages;
}

inline const datasets::CodeProblem& self_check(const std::string& language) {
  for (const auto& problem : evaluators::self_check_problems())
    if (problem.language == language) return problem;
  throw base::InternalError("no problem for " + language);
}

}  // namespace evalrun::tests

#define SKIP_UNLESS_RUNNABLE(language) \
  if (const std::string why = ::evalrun::tests::why_not(language); !why.empty()) GTEST_SKIP() << why
