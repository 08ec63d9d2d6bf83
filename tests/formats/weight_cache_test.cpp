// The cache of converted weights: equal bytes when read again, rebuilt whatever happened to the
// file, never in the way of loading.
#include "engine/model/weight_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "engine/base/text.h"
#include "engine/base/units.h"
#include "tests/formats/weight_models.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::matrices_of;
using testing::TempFolder;
using testing::write_gguf;

class WeightCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* old = std::getenv("EVALRUN_HOME")) old_home_ = old;
    setenv("EVALRUN_HOME", home_.path().c_str(), 1);
    unsetenv("EVALRUN_NO_WEIGHT_CACHE");
    model_ = write_gguf(folder_, "m.gguf", {.type = DType::kBF16, .vocabulary = 3000});
  }
  void TearDown() override {
    if (old_home_)
      setenv("EVALRUN_HOME", old_home_->c_str(), 1);
    else
      unsetenv("EVALRUN_HOME");
  }
  static LoadOptions options(WeightFormat format = WeightFormat::kInt8Fast) {
    LoadOptions o;
    o.format = format;
    o.need_tokenizer = false;
    o.n_threads = 3;
    o.cache_from_bytes = 0;
    return o;
  }
  std::shared_ptr<const Model> load(const LoadOptions& o = options()) {
    ::testing::internal::CaptureStderr();
    auto model = load_model(model_, o);
    stderr_ = ::testing::internal::GetCapturedStderr();
    return model;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(home_.path() + "/weights", error))
      all.push_back(entry.path());
    std::sort(all.begin(), all.end());
    return all;
  }
  static std::string bytes_of_model(const Model& model) {
    std::string all;
    for (const auto& [name, m] : matrices_of(model))
      all.append(reinterpret_cast<const char*>(m->bytes().data()), m->size());
    return all;
  }
  std::string file() const {
    return home_.path() + "/weights/" + base::sha256_file(model_) + "-int8-fast-3.bin";
  }
  static ino_t inode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_ino;
  }
  static void overwrite(const std::string& path, const std::string& bytes) {
    fs::remove_all(path);
    std::ofstream(path, std::ios::binary) << bytes;
  }

  TempFolder folder_, home_;
  std::string model_, stderr_;
  std::optional<std::string> old_home_;
};

TEST_F(WeightCacheTest, SecondLoadReadsTheSameBytes) {
  const auto first = load();
  EXPECT_THAT(stderr_, HasSubstr("int8-fast weights of " + model_ + " are kept"));
  EXPECT_THAT(stderr_, HasSubstr(file() + " (" + base::format_bytes(fs::file_size(file()))));
  EXPECT_THAT(stderr_, HasSubstr("evalrun data cache"));
  EXPECT_EQ(std::count(stderr_.begin(), stderr_.end(), '\n'), 1);
  ASSERT_EQ(files(), std::vector<fs::path>{file()});
  const ino_t written = inode(file());
  const std::string stored = base::read_file(file());
  const auto second = load();
  EXPECT_EQ(stderr_, "");
  EXPECT_EQ(bytes_of_model(*first), bytes_of_model(*second));
  EXPECT_EQ(first->layer(1).attn_norm, second->layer(1).attn_norm);
  EXPECT_EQ(first->final_norm(), second->final_norm());
  EXPECT_EQ(second->format(), WeightFormat::kInt8Fast);
  EXPECT_EQ(second->first_layers(1)->layer(0).q.bytes().data(), second->layer(0).q.bytes().data());
  EXPECT_EQ(inode(file()), written);
  EXPECT_EQ(base::read_file(file()), stored);
  LoadOptions no_cache = options();
  no_cache.cache = false;
  EXPECT_EQ(bytes_of_model(*load(no_cache)), bytes_of_model(*first));
}

// What a file says it holds.
CachedWeights contents_of(const std::string& path) {
  const std::string bytes = base::read_file(path);
  const auto header = nlohmann::json::parse(bytes.substr(0, bytes.find('\n')));
  CachedWeights c{header.at("model"), header.at("format"), {}, header.at("bytes"), {}};
  for (const auto& m : header.at("matrices")) {
    const WeightStorage storage =
        m.at("storage") == "int8-channel" ? WeightStorage::kInt8Channel : WeightStorage::kInt8Group;
    c.matrices.push_back(
        {m.at("name"), storage, m.at("out"), m.at("in"), m.at("offset"), m.at("bytes")});
  }
  return c;
}

TEST_F(WeightCacheTest, WeightsReallyComeFromTheFile) {
  const auto first = load();
  const CachedWeights contents = contents_of(file());
  WeightCache cache(contents);
  std::vector<std::byte> weights(contents.bytes);
  ASSERT_TRUE(cache.read(weights, 1));
  const auto down =
      std::ranges::find(contents.matrices, "blk.1.ffn_down.weight", &CachedMatrix::name);
  ASSERT_NE(down, contents.matrices.end());
  const std::span<const std::byte> own = first->layer(1).down.bytes();
  ASSERT_TRUE(std::ranges::equal(own, std::span(weights).subspan(down->offset, down->bytes)));
  weights[down->offset] ^= std::byte{1};
  cache.write(weights, 1);  // with checksums that fit
  const auto second = load();
  EXPECT_EQ(stderr_, "");
  EXPECT_EQ(second->layer(1).down.bytes()[0], own[0] ^ std::byte{1});
}

TEST_F(WeightCacheTest, HoldsWhatItWasGivenAndNothingElse) {
  const CachedWeights contents{
      "abc", "int8", {{"a", WeightStorage::kInt8Group, 1, 1, 0, 64}}, (size_t{2} << 20) + 64, {}};
  WeightCache cache(contents);
  EXPECT_EQ(cache.path(), home_.path() + "/weights/abc-int8-3.bin");
  std::vector<std::byte> out(contents.bytes), in(contents.bytes);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 31 >> 3);
  EXPECT_FALSE(cache.read(in, 2));
  cache.write(out, 2);
  EXPECT_EQ(fs::file_size(cache.path()), cache.file_bytes());
  ASSERT_TRUE(cache.read(in, 2));
  EXPECT_EQ(in, out);
  // The same name with other contents is another file.
  CachedWeights other = contents;
  other.matrices[0].out = 2;
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(WeightCache(other).read(in, 2));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("another model or version"));
}

TEST_F(WeightCacheTest, OnlyRoundedWeightsAreKept) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    (void)load(options(format));
    EXPECT_TRUE(files().empty()) << name_of(format);
  }
  model_ = write_gguf(folder_, "m.gguf", {.type = DType::kQ8_0});
  (void)load(options(WeightFormat::kInt8));
  EXPECT_TRUE(files().empty());
  model_ = write_gguf(folder_, "m.gguf", {.type = DType::kQ4_K});
  (void)load(options(WeightFormat::kStored));
  EXPECT_TRUE(files().empty());
  (void)load(options(WeightFormat::kQ4));
  EXPECT_EQ(files().size(), 1u);
}

// One rounded tensor among those as stored: the file has all.
TEST_F(WeightCacheTest, MixturesComeBackFromTheFile) {
  model_ = write_gguf(
      folder_, "m.gguf",
      {.type = DType::kQ4_K, .types = {{"attn_v", DType::kQ6_K}, {"ffn_up", DType::kF16}}});
  const auto first = load(options(WeightFormat::kStored));
  EXPECT_THAT(stderr_, HasSubstr("stored weights of " + model_ + " are kept"));
  ASSERT_EQ(files().size(), 1u);
  const auto second = load(options(WeightFormat::kStored));
  EXPECT_EQ(stderr_, "");
  EXPECT_EQ(bytes_of_model(*first), bytes_of_model(*second));
  EXPECT_EQ(second->layer(1).v.storage(), WeightStorage::kQ6K);
  EXPECT_EQ(second->layer(1).up.storage(), WeightStorage::kInt8Group);
}

TEST_F(WeightCacheTest, CanBeSwitchedOff) {
  LoadOptions o = options();
  o.cache = false;
  (void)load(o);
  o = options();
  o.hash_weights = false;
  (void)load(o);
  o = options();
  o.cache_from_bytes = size_t{1} << 30;
  (void)load(o);
  setenv("EVALRUN_NO_WEIGHT_CACHE", "1", 1);
  (void)load();
  unsetenv("EVALRUN_NO_WEIGHT_CACHE");
  EXPECT_TRUE(files().empty());
  (void)load();
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(WeightCacheTest, AnyDamageIsRebuilt) {
  const std::string expected = bytes_of_model(*load());
  const std::string intact = base::read_file(file());
  const size_t data = intact.find('\n') + 1, size = intact.size() - kSourcePageBytes;
  const size_t table = size - 8 * ((expected.size() + (1 << 20) - 1) / (1 << 20) + 1);
  ASSERT_EQ(table - data, expected.size());
  ASSERT_GT(expected.size(), size_t{2} << 20);  // more than two checksums

  std::vector<std::pair<std::string, std::string>> damaged;
  for (const auto& [what, at] : {std::pair<std::string, size_t>{"first byte", 0},
                                 {"header", 40},
                                 {"list", data / 4},
                                 {"padding", data - 3},
                                 {"end of header", data - 1},
                                 {"first weight", data},
                                 {"weights", data + expected.size() / 2},
                                 {"last weight", table - 1},
                                 {"first checksum", table},
                                 {"checksum of the checksums", size - 1}}) {
    std::string bytes = intact;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    damaged.emplace_back(what, bytes);
  }
  for (const size_t cut :
       {size_t{0}, size_t{1}, data - 1, data, data + 5, table, size - 1, size, intact.size() - 1})
    damaged.emplace_back(fmt::format("cut at {}", cut), intact.substr(0, cut));
  damaged.emplace_back("longer", intact + "x");
  damaged.emplace_back("zeros", std::string(intact.size(), '\0'));
  std::string swapped = intact;  // two whole pieces in each other's place
  std::swap_ranges(swapped.begin() + static_cast<long>(data),
                   swapped.begin() + static_cast<long>(data) + (1 << 20),
                   swapped.begin() + static_cast<long>(data) + (1 << 20));
  damaged.emplace_back("swapped", swapped);
  for (const auto& [what, bytes] : damaged) {
    SCOPED_TRACE(what);
    overwrite(file(), bytes);
    ASSERT_EQ(bytes_of_model(*load()), expected);
    EXPECT_THAT(stderr_, HasSubstr(file()));
    EXPECT_THAT(stderr_, HasSubstr("again"));
    EXPECT_EQ(std::count(stderr_.begin(), stderr_.end(), '\n'), 2);  // and what is kept now
    EXPECT_EQ(base::read_file(file()), intact);
    EXPECT_EQ(files().size(), 1u);
  }
}

TEST_F(WeightCacheTest, OtherThingsInItsPlace) {
  const std::string expected = bytes_of_model(*load());
  const auto expect_loads = [&](const std::string& what, const std::string& note) {
    SCOPED_TRACE(what);
    EXPECT_EQ(bytes_of_model(*load()), expected);
    EXPECT_THAT(stderr_, HasSubstr(file()));
    EXPECT_THAT(stderr_, HasSubstr(note));
  };
  fs::remove(file());
  fs::create_directory(file());
  std::ofstream(file() + "/x") << "x";
  expect_loads("folder", "not kept");
  fs::remove_all(file());
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  expect_loads("pipe", "regular file");
  EXPECT_TRUE(fs::is_regular_file(file()));
  fs::remove(file());
  fs::create_symlink(file(), file());
  expect_loads("link to itself", "cannot be opened");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file())));
  if (geteuid() != 0) {  // root reads anything
    fs::permissions(file(), fs::perms::none);
    expect_loads("unreadable", "cannot be opened");
  }
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(WeightCacheTest, NoPlaceToWriteIsNoError) {
  const auto without = [&] {
    LoadOptions o = options();
    o.cache = false;
    return bytes_of_model(*load(o));
  }();
  overwrite(home_.path() + "/weights", "not a folder");
  EXPECT_EQ(bytes_of_model(*load()), without);
  EXPECT_THAT(stderr_, HasSubstr("not kept"));
  EXPECT_EQ(std::count(stderr_.begin(), stderr_.end(), '\n'), 1);
  fs::remove(home_.path() + "/weights");

  // Writing past this limit would end the process by a signal.
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  struct rlimit small = old;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto limited = load();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(bytes_of_model(*limited), without);
  EXPECT_THAT(stderr_, HasSubstr("ulimit"));
  EXPECT_TRUE(files().empty());
}

TEST_F(WeightCacheTest, OldLayoutsAndDeadFilesAreRemoved) {
  const std::string folder = home_.path() + "/weights/", hash = base::sha256_file(model_);
  fs::create_directories(folder);
  const std::string old_layout = folder + hash + "-int8-fast-0.bin",
                    newer = folder + hash + "-int8-fast-4.bin",
                    other_format = folder + hash + "-int8-0.bin",
                    other_model = folder + std::string(64, 'a') + "-int8-fast-0.bin",
                    dead = other_model + ".tmp.1.0", fresh = other_model + ".tmp.2.0";
  for (const std::string& path : {old_layout, newer, other_format, other_model, dead, fresh})
    overwrite(path, "x");
  fs::last_write_time(dead, fs::file_time_type::clock::now() - std::chrono::hours(2));
  (void)load();
  EXPECT_FALSE(fs::exists(old_layout));
  EXPECT_FALSE(fs::exists(dead));
  for (const std::string& path : {newer, other_format, other_model, fresh, file()})
    EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(WeightCacheTest, ThreadsMayLoadAtOnce) {
  const std::string expected = bytes_of_model(*load());
  fs::remove(file());
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (std::string& f : found)
    threads.emplace_back([&f, this] { f = bytes_of_model(*load_model(model_, options())); });
  for (std::thread& t : threads) t.join();
  for (const std::string& f : found) EXPECT_EQ(f, expected);
  EXPECT_EQ(files(), std::vector<fs::path>{file()});
}

TEST_F(WeightCacheTest, ProcessesMayLoadAtOnce) {
  const std::string expected = base::sha256_hex(bytes_of_model(*load()));
  const std::string intact = base::read_file(file());
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int wrong = 0;
      for (int round = 0; round < 8; ++round) {
        std::error_code error;
        // One removes the file, one spoils it, one just loads.
        if (i == 0) fs::remove(file(), error);
        if (i == 1) {
          fs::path damaged = file() + ".damaged";
          std::ofstream(damaged, std::ios::binary)
              << intact.substr(0, intact.size() - 100) << std::string(100, 'x');
          fs::rename(damaged, file(), error);
        }
        if (base::sha256_hex(bytes_of_model(*load_model(model_, options()))) != expected) ++wrong;
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
  EXPECT_EQ(base::sha256_hex(bytes_of_model(*load())), expected);
  EXPECT_EQ(files(), std::vector<fs::path>{file()});
}

// The cache does not hide damage done to the model: another hash is another file.
TEST_F(WeightCacheTest, AnotherModelInTheSamePlaceIsConverted) {
  const auto first = load();
  write_gguf(folder_, "m.gguf", {.type = DType::kBF16, .vocabulary = 3000, .seed = 2});
  const auto second = load();
  EXPECT_NE(bytes_of_model(*first), bytes_of_model(*second));
  EXPECT_EQ(files().size(), 2u);
}

}  // namespace
}  // namespace evalrun::engine
