// main() of the programs here.
#pragma once
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::engine::gpu_report {

// run(arguments) gives the exit code; --help and errors are seen to.
template <typename Run>
int run_program(int argc, char** argv, const char* usage, const Run& run) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--help"}) {
    std::fputs(usage, stdout);
    return 0;
  }
  try {
    return run(arguments);
  } catch (const base::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}

}  // namespace evalrun::engine::gpu_report
