// Memory while a model is converted: all anonymous memory of the process under a limit of 1.3 times
// the weights, and the message when they do not fit at all.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <new>

#include "engine/base/text.h"
#include "tests/formats/weight_models.h"

namespace evalrun::engine {
namespace {

using testing::TempFolder;
using testing::write_gguf;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Private writable memory of this process, in bytes: what RLIMIT_DATA counts.
rlim_t data_bytes() {
  std::ifstream in("/proc/self/status");
  std::string word;
  while (in >> word)
    if (word == "VmData:") {
      rlim_t kib = 0;
      in >> kib;
      return kib * 1024;
    }
  return 0;
}

constexpr int kLoaded = 0, kNoMemory = 3, kOther = 4;

// Loads in a process of its own that may take `budget` bytes more than it has.
int load_within(const std::string& path, const LoadOptions& options, double budget) {
  const pid_t child = fork();
  if (child == 0) {
    const auto most = data_bytes() + static_cast<rlim_t>(budget);
    const struct rlimit limit { most, most };
    int result = kOther;
    if (setrlimit(RLIMIT_DATA, &limit) == 0) {
      try {
        (void)load_model(path, options);
        result = kLoaded;
      } catch (const std::bad_alloc&) {
        result = kNoMemory;
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
      }
    }
    _exit(result);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(WeightMemory, ConversionTakesAtMostThreeTenthsMoreThanTheWeights) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have memory of their own";
  if (data_bytes() == 0) GTEST_SKIP() << "/proc/self/status has no VmData";
  const TempFolder folder;
  // Large enough that the stack of a second thread (8 MiB, mostly untouched, but counted) is small.
  const std::string path =
      write_gguf(folder, "m.gguf", {.type = DType::kBF16, .vocabulary = 90000, .width = 768});
  LoadOptions options;
  options.need_tokenizer = false;
  options.hash_weights = false;
  options.n_threads = 2;
  for (const WeightFormat format :
       {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kInt8Fast}) {
    SCOPED_TRACE(name_of(format));
    options.format = format;
    const auto weights = static_cast<double>(load_model(path, options)->weight_bytes());
    ASSERT_GT(weights, 70e6);
    EXPECT_EQ(load_within(path, options, 1.3 * weights), kLoaded);
    EXPECT_EQ(load_within(path, options, 0.9 * weights), kNoMemory);  // the limit has effect
  }
}

}  // namespace
}  // namespace evalrun::engine
