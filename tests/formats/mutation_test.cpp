// Damaged files: whatever is cut off or flipped, reading ends with the model or with one data error
// (exit code 7). Sanitizer builds run the same cases.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/formats/gguf.h"
#include "engine/formats/safetensors.h"
#include "engine/model/model.h"
#include "tests/formats/test_files.h"

namespace evalrun::engine {
namespace {

using testing::data_path;
using testing::TempFolder;

enum class Outcome { kRead, kRefused };

// Anything but success and a data error is a failure: the test names what was done to the file.
Outcome attempt(const std::function<void()>& read, const std::string& what) {
  try {
    read();
    return Outcome::kRead;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kData) << what << ": " << error.what();
    EXPECT_LT(std::string_view(error.what()).size(), 2000u) << what;
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << ": " << error.what();
  }
  return Outcome::kRefused;
}

void load(const std::string& path) {
  LoadOptions options;
  options.n_threads = 1;
  options.hash_weights = false;
  (void)load_model(path, options);
}

TEST(Mutation, GgufCutAnywhereIsRefused) {
  const TempFolder folder;
  const std::string whole = base::read_file(data_path("tiny-qwen3.gguf"));
  const GgufFile intact(data_path("tiny-qwen3.gguf"));
  std::set<size_t> cuts = {0, 1, 3, 4, 7, 8, 15, 16, 23, 24, whole.size() - 1};
  for (const auto& [name, t] : intact.tensors()) {
    const auto begin = static_cast<size_t>(t.bytes.data() - intact.file()->bytes().data());
    cuts.insert({begin - 1, begin, begin + 1, begin + t.bytes.size() - 1});
  }
  base::Rng rng(1);
  for (int i = 0; i < 300; ++i) cuts.insert(rng.below(whole.size()));
  for (int i = 0; i < 300; ++i) cuts.insert(rng.below(20000));  // the header
  for (const size_t cut : cuts) {
    const std::string path = folder.write("cut.gguf", whole.substr(0, cut));
    const std::string what = fmt::format("cut at {} of {}", cut, whole.size());
    EXPECT_EQ(attempt([&] { load(path); }, what), Outcome::kRefused) << what;
  }
}

TEST(Mutation, SafetensorsCutAnywhereIsRefused) {
  const TempFolder folder;
  const std::string whole = base::read_file(data_path("tiny-linear-rope/model.safetensors"));
  std::set<size_t> cuts = {0, 1, 7, 8, 9, whole.size() - 1};
  base::Rng rng(2);
  for (int i = 0; i < 300; ++i) cuts.insert(rng.below(whole.size()));
  for (int i = 0; i < 300; ++i) cuts.insert(rng.below(3000));
  for (const size_t cut : cuts) {
    const std::string path = folder.write("cut.safetensors", whole.substr(0, cut));
    const std::string what = fmt::format("cut at {} of {}", cut, whole.size());
    EXPECT_EQ(attempt([&] { SafeTensors{path}; }, what), Outcome::kRefused) << what;
  }
}

// Flips bits, overwrites with values that hurt (0, 0xFF, huge lengths) or moves bytes, 1 to 4
// times, within the first `range` bytes.
std::string mutate(std::string bytes, size_t range, base::Rng& rng) {
  const uint64_t n = 1 + rng.below(4);
  for (uint64_t i = 0; i < n; ++i) {
    const size_t at = rng.below(range);
    switch (rng.below(5)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << rng.below(8));
        break;
      case 1:
        bytes[at] = static_cast<char>(rng.below(256));
        break;
      case 2:
        bytes[at] = static_cast<char>(0xFF);
        break;
      case 3:
        for (size_t k = at; k < std::min(bytes.size(), at + 8); ++k)
          bytes[k] = static_cast<char>(rng.below(3) == 0 ? 0xFF : 0);
        break;
      default:
        bytes[at] = bytes[rng.below(range)];
        break;
    }
  }
  return bytes;
}

TEST(Mutation, FlippedGgufNeverCrashes) {
  const TempFolder folder;
  const std::string whole = base::read_file(data_path("tiny-qwen3.gguf"));
  // The bytes before the first tensor, vocabulary and merges included.
  const GgufFile intact(data_path("tiny-qwen3.gguf"));
  size_t header = whole.size();
  for (const auto& [name, t] : intact.tensors())
    header = std::min(header, static_cast<size_t>(t.bytes.data() - intact.file()->bytes().data()));
  base::Rng rng(3);
  int refused = 0;
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) {
    // Half of the rounds hit the counts and the tensor list, which take few of the bytes.
    const size_t range = i % 2 == 0 ? header : 1200;
    const std::string path = folder.write("flip.gguf", mutate(whole, range, rng));
    refused +=
        attempt([&] { load(path); }, fmt::format("round {}", i)) == Outcome::kRefused ? 1 : 0;
  }
  EXPECT_GT(refused, kRounds / 10);  // the mutations do hit something
}

TEST(Mutation, FlippedSafetensorsNeverCrash) {
  const TempFolder folder;
  const std::string whole = base::read_file(data_path("tiny-linear-rope/model.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  base::Rng rng(4);
  int refused = 0;
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) {
    const std::string path =
        folder.write("flip.safetensors", mutate(whole, i % 8 == 0 ? 16 : header, rng));
    refused += attempt([&] { SafeTensors{path}; }, fmt::format("round {}", i)) == Outcome::kRefused
                   ? 1
                   : 0;
  }
  EXPECT_GT(refused, kRounds / 10);
}

TEST(Mutation, FlippedConfigurationNeverCrashes) {
  const TempFolder folder;
  for (const char* name : {"model.safetensors", "tokenizer.json", "tokenizer_config.json"})
    folder.write(name, base::read_file(data_path("tiny-qwen3/") + name));
  base::Rng rng(5);
  const std::string whole = base::read_file(data_path("tiny-qwen3/config.json"));
  int refused = 0;
  constexpr int kRounds = 600;
  for (int i = 0; i < kRounds; ++i) {
    folder.write("config.json", mutate(whole, whole.size(), rng));
    refused +=
        attempt([&] { load(folder.path()); }, fmt::format("round {}", i)) == Outcome::kRefused ? 1
                                                                                               : 0;
  }
  EXPECT_GT(refused, kRounds / 10);
}

}  // namespace
}  // namespace evalrun::engine
