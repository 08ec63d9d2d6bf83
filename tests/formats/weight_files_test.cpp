// The bound of the folder of converted weights: what goes first, and what never goes.
#include "engine/model/weight_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/model/weight_cache.h"
#include "tests/formats/weight_models.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFolder;

constexpr int64_t kNsPerSecond = 1'000'000'000;

class WeightFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* old = std::getenv("EVALRUN_HOME")) old_home_ = old;
    setenv("EVALRUN_HOME", home_.path().c_str(), 1);
    unsetenv("EVALRUN_CACHE_MAX");
    folder_ = weight_folder();
    fs::create_directories(folder_);
  }
  void TearDown() override {
    unsetenv("EVALRUN_CACHE_MAX");
    if (old_home_)
      setenv("EVALRUN_HOME", old_home_->c_str(), 1);
    else
      unsetenv("EVALRUN_HOME");
  }
  // A file of `bytes`, last used `minutes` ago.
  std::string put(const std::string& name, size_t bytes, int minutes) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << std::string(bytes, 'x');
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
    return path;
  }
  std::vector<std::string> names() const { return names_of(weight_files(folder_)); }
  static std::vector<std::string> names_of(const std::vector<WeightFile>& files) {
    std::vector<std::string> all;
    for (const WeightFile& file : files) all.push_back(fs::path(file.path).filename());
    return all;
  }
  static CachedWeights contents(const std::string& model, size_t bytes) {
    return {model,
            "int8",
            {{"a", WeightStorage::kInt8Group, 1, 1, 0, 64}},
            bytes,
            "/models/" + model + ".gguf"};
  }
  // Writes a file by the cache itself and returns what it said.
  static std::string store(WeightCache& cache, size_t bytes) {
    ::testing::internal::CaptureStderr();
    cache.write(std::vector<std::byte>(bytes), 1);
    return ::testing::internal::GetCapturedStderr();
  }

  TempFolder home_;
  std::string folder_;
  std::optional<std::string> old_home_;
};

TEST_F(WeightFilesTest, ListsWhatIsThereOldestFirst) {
  put("aa-int8-fast-3.bin", 10, 3);
  put("bb-q4-1.bin", 20, 9);
  put("aa-int8-3.bin.tmp.17.0", 5, 1);
  put("notes.txt", 7, 5);
  put("nonsense.bin", 7, 5);
  put("aa-int8-two.bin", 7, 5);
  fs::create_directory(folder_ + "/cc-int8-3.bin");
  const std::vector<WeightFile> files = weight_files(folder_);
  ASSERT_THAT(names_of(files),
              ElementsAre("bb-q4-1.bin", "aa-int8-fast-3.bin", "aa-int8-3.bin.tmp.17.0"));
  EXPECT_EQ(files[1].model, "aa");
  EXPECT_EQ(files[1].format, "int8-fast");
  EXPECT_EQ(files[1].layout, 3);
  EXPECT_EQ(files[1].bytes, 10);
  EXPECT_EQ(files[0].layout, 1);
  EXPECT_FALSE(files[0].is_partial);
  EXPECT_TRUE(files[2].is_partial);
  EXPECT_EQ(total_bytes(files), 35);
  EXPECT_NEAR(static_cast<double>(files[2].last_used_ns - files[0].last_used_ns),
              8 * 60 * static_cast<double>(kNsPerSecond), static_cast<double>(kNsPerSecond));
  EXPECT_THAT(weight_files(folder_ + "/absent"), IsEmpty());
}

TEST_F(WeightFilesTest, TheLeastRecentlyUsedGoFirst) {
  put("aa-int8-3.bin", 100, 30);
  put("bb-int8-3.bin", 100, 10);
  put("cc-int8-3.bin", 100, 20);
  put("dd-int8-3.bin", 100, 5);
  put("notes.txt", 1000, 50);
  EXPECT_THAT(shrink_weight_files(folder_, 400), IsEmpty());
  EXPECT_THAT(names_of(shrink_weight_files(folder_, 250)),
              ElementsAre("aa-int8-3.bin", "cc-int8-3.bin"));
  EXPECT_THAT(names(), ElementsAre("bb-int8-3.bin", "dd-int8-3.bin"));
  EXPECT_THAT(names_of(shrink_weight_files(folder_, 199)), ElementsAre("bb-int8-3.bin"));
  EXPECT_THAT(names_of(shrink_weight_files(folder_, 0)), ElementsAre("dd-int8-3.bin"));
  EXPECT_TRUE(fs::exists(folder_ + "/notes.txt"));
}

// A child that holds `path` until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& path, int flags = O_RDONLY) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    child_ = fork();
    if (child_ == 0) {
      const WeightFileHold hold(open(path.c_str(), flags, 0644));
      (void)!write(ready[1], "x", 1);
      for (;;) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Holder() { end(); }
  void end() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
};

TEST_F(WeightFilesTest, WhatAnotherProcessUsesStays) {
  const std::string used = put("aa-int8-3.bin", 100, 30);
  put("bb-int8-3.bin", 100, 10);
  Holder holder(used);
  EXPECT_TRUE(weight_files(folder_)[0].in_use);
  EXPECT_FALSE(weight_files(folder_)[1].in_use);
  EXPECT_THAT(names_of(shrink_weight_files(folder_, 0)), ElementsAre("bb-int8-3.bin"));
  EXPECT_THAT(remove_weight_files(folder_, [](const WeightFile&) { return true; }), IsEmpty());
  EXPECT_TRUE(fs::exists(used));
  holder.end();
  EXPECT_THAT(names_of(shrink_weight_files(folder_, 0)), ElementsAre("aa-int8-3.bin"));
}

TEST_F(WeightFilesTest, WhatIsBeingWrittenStaysAndWhatAKilledProcessLeftGoes) {
  const std::string path = folder_ + "/aa-int8-3.bin.tmp.1.0";
  Holder writer(path, O_WRONLY | O_CREAT | O_EXCL);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(5));
  put("bb-int8-3.bin.tmp.2.0", 100, 2);  // nobody's
  put("cc-int8-3.bin.tmp.3.0", 100, 0);  // perhaps about to be locked
  EXPECT_THAT(names_of(shrink_weight_files(folder_, 1 << 20)),
              ElementsAre("bb-int8-3.bin.tmp.2.0"));
  EXPECT_TRUE(fs::exists(path));
  writer.end();
  EXPECT_THAT(names_of(shrink_weight_files(folder_, 1 << 20)),
              ElementsAre("aa-int8-3.bin.tmp.1.0"));
}

TEST_F(WeightFilesTest, TheBoundIsKeptBelowAndReadingCountsAsUse) {
  constexpr size_t kBytes = 100'000;
  const int64_t file_bytes = static_cast<int64_t>(WeightCache(contents("aa", kBytes)).file_bytes());
  const int64_t limit = 2 * file_bytes + 10;
  std::vector<std::byte> weights(kBytes);
  for (const char* model : {"aa", "bb"}) {
    WeightCache cache(contents(model, kBytes), limit);
    EXPECT_THAT(store(cache, kBytes), HasSubstr("are kept"));
  }
  EXPECT_THAT(names(), ElementsAre("aa-int8-3.bin", "bb-int8-3.bin"));
  EXPECT_EQ(weight_files(folder_)[0].source, "/models/aa.gguf");
  ASSERT_TRUE(WeightCache(contents("aa", kBytes), limit).read(weights, 1));
  EXPECT_THAT(names(), ElementsAre("bb-int8-3.bin", "aa-int8-3.bin"));
  WeightCache third(contents("cc", kBytes), limit);
  const std::string said = store(third, kBytes);
  EXPECT_THAT(said, HasSubstr("removed 1 file "));
  EXPECT_THAT(names(), ElementsAre("aa-int8-3.bin", "cc-int8-3.bin"));
  EXPECT_LE(total_bytes(weight_files(folder_)), limit);

  // A bound that was lowered holds from the next load on, for what is in no use.
  (void)third.take_hold();
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(WeightCache(contents("aa", kBytes), file_bytes).read(weights, 1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("removed"));
}

TEST_F(WeightFilesTest, WhatDoesNotFitIsNotKept) {
  constexpr size_t kBytes = 100'000;
  WeightCache first(contents("aa", kBytes));
  const auto file_bytes = static_cast<int64_t>(first.file_bytes());
  store(first, kBytes);  // and holds it
  WeightCache large(contents("bb", kBytes), file_bytes - 1);
  EXPECT_THAT(store(large, kBytes), HasSubstr("1 B more than the 108 kB of EVALRUN_CACHE_MAX"));
  EXPECT_THAT(names(), ElementsAre("aa-int8-3.bin"));
  WeightCache second(contents("bb", kBytes), 2 * file_bytes - 1);
  EXPECT_THAT(store(second, kBytes), HasSubstr("files in use"));
  EXPECT_THAT(names(), ElementsAre("aa-int8-3.bin"));
}

TEST_F(WeightFilesTest, NothingIsKeptWithABoundOfZero) {
  constexpr size_t kBytes = 100'000;
  put("bb-int8-3.bin", 100, 10);
  WeightCache cache(contents("aa", kBytes), 0);
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_EQ(store(cache, kBytes), "");
  std::vector<std::byte> weights(kBytes);
  EXPECT_FALSE(cache.read(weights, 1));
  EXPECT_THAT(names(), IsEmpty());
}

// Processes that all write at once, each more than the others leave room for.
TEST_F(WeightFilesTest, ManyWritersKeepTheBound) {
  constexpr size_t kBytes = 300'000;
  const int64_t file_bytes = static_cast<int64_t>(WeightCache(contents("m0", kBytes)).file_bytes());
  const int64_t limit = 3 * file_bytes;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (freopen("/dev/null", "w", stderr) == nullptr) _exit(9);
      std::vector<std::byte> weights(kBytes);
      int wrong = 0;
      for (int round = 0; round < 12; ++round) {
        const std::string model = "m" + std::to_string((i + round) % 5);
        std::fill(weights.begin(), weights.end(), static_cast<std::byte>(model[1]));
        WeightCache cache(contents(model, kBytes), limit);
        std::vector<std::byte> found(kBytes);
        if (!cache.read(found, 1))
          cache.write(weights, 1);
        else if (found != weights)
          ++wrong;
      }
      _exit(wrong);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_THAT(shrink_weight_files(folder_, limit), IsEmpty());
  EXPECT_LE(total_bytes(weight_files(folder_)), limit);
  EXPECT_THAT(names(), ::testing::Not(IsEmpty()));
}

TEST_F(WeightFilesTest, TheVariableIsASizeOrAnError) {
  const auto limit = [](const char* text) {
    setenv("EVALRUN_CACHE_MAX", text, 1);
    return weight_limit_variable();
  };
  EXPECT_EQ(weight_limit_variable(), std::nullopt);
  EXPECT_EQ(limit(""), std::nullopt);
  EXPECT_EQ(limit("0"), 0);
  EXPECT_EQ(limit("20GB"), 20'000'000'000);
  EXPECT_EQ(limit("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(limit("300MiB"), 300 << 20);
  EXPECT_EQ(limit("7B"), 7);
  EXPECT_EQ(limit("2TB"), 2'000'000'000'000);
  for (const char* text : {"20", "GB", "-1GB", "1e3GB", "20GBs", "20 gigs", "nan", "inf GB",
                           "1,5GB", "99999999999TB"}) {
    try {
      limit(text);
      ADD_FAILURE() << text;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ExitCode::kUsage);
      EXPECT_THAT(error.message(), HasSubstr(text));
    }
  }
  EXPECT_EQ(weight_limit(folder_, 5), 5);
}

TEST_F(WeightFilesTest, TheDefaultIsTenGigabytesOrATenthOfTheFreeDisk) {
  EXPECT_EQ(weight_limit(folder_ + "/absent", std::nullopt), 10'000'000'000);
  const auto free_bytes = static_cast<double>(fs::space(folder_).available);
  EXPECT_NEAR(static_cast<double>(weight_limit(folder_, std::nullopt)),
              std::max(1e10, free_bytes / 10), 1e9);
}

TEST_F(WeightFilesTest, TheVariableReachesTheLoader) {
  TempFolder folder;
  const std::string model =
      testing::write_gguf(folder, "m.gguf", {.type = DType::kBF16, .vocabulary = 3000});
  LoadOptions options;
  options.format = WeightFormat::kInt8Fast;
  options.need_tokenizer = false;
  options.cache_from_bytes = 0;
  setenv("EVALRUN_CACHE_MAX", "much", 1);
  EXPECT_THROW(load_model(model, options), base::Error);
  setenv("EVALRUN_CACHE_MAX", "0", 1);
  (void)load_model(model, options);
  EXPECT_THAT(names(), IsEmpty());
  setenv("EVALRUN_CACHE_MAX", "1GB", 1);
  ::testing::internal::CaptureStderr();
  auto loaded = load_model(model, options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("are kept"));
  ASSERT_EQ(names().size(), 1u);
  // While the model lives, its file stays; then it may go.
  EXPECT_TRUE(weight_files(folder_)[0].in_use);
  EXPECT_EQ(weight_files(folder_)[0].source, model);
  auto layers = loaded->first_layers(1);
  loaded.reset();
  EXPECT_TRUE(weight_files(folder_)[0].in_use) << "a model of shared layers";
  layers.reset();
  EXPECT_FALSE(weight_files(folder_)[0].in_use);
}

}  // namespace
}  // namespace evalrun::engine
