// Part of cuda_checked_tests: with CUDA_EMULATOR_EVERY_KERNEL set, the run fails when a kernel of
// engine/cuda was not launched with its accesses looked at. So a filter cannot leave one out
// unseen.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/gpu/emulator/accesses.h"

namespace {

std::set<std::string> kernels_of_source() {
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(EVALRUN_SOURCE_DIR "/engine/cuda")) {
    if (entry.path().extension() != ".cu") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    constexpr std::string_view kMark = "__global__ void";
    for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at)) {
      at = text.find_first_not_of(" \n", at + kMark.size());
      if (text.compare(at, 17, "__launch_bounds__") == 0) {
        int open = 0;
        for (at = text.find('(', at); open += text[at] == '(', open -= text[at] == ')', open > 0;)
          ++at;
        at = text.find_first_not_of(" \n", at + 1);
      }
      names.insert(text.substr(at, text.find('(', at) - at));
    }
  }
  return names;
}

class EveryKernel : public ::testing::Environment {
  void TearDown() override {
    if (std::getenv("CUDA_EMULATOR_EVERY_KERNEL") == nullptr) return;
    const std::vector<std::string> run = emulator::accesses::checked_kernels();
    const std::set<std::string> all = kernels_of_source();
    EXPECT_GT(all.size(), 20u);
    for (const std::string& name : all) {
      const std::regex word("\\b" + name + "\\b");
      EXPECT_TRUE(std::any_of(run.begin(), run.end(),
                              [&](const std::string& k) { return std::regex_search(k, word); }))
          << name
          << ": no test of this run launched it; add one to the filter in tests/gpu/CMakeLists.txt";
    }
  }
};
const auto* const g_every_kernel = ::testing::AddGlobalTestEnvironment(new EveryKernel);

}  // namespace
