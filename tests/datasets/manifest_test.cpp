// The manifest itself, its strict reader, and the comparison of files with it.
#include "datasets/manifest.h"

#include <gmock/gmock.h>

#include <regex>
#include <set>

#include "datasets/dataset.h"
#include "engine/base/text.h"
#include "tests/datasets/test_files.h"

namespace evalrun::datasets {
namespace {

using base::ExitCode;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Manifest, EntriesMakeSense) {
  ASSERT_GE(manifest().size(), 15u);
  const std::regex url(R"(https://[a-z.]+/\S+)"), hash("[0-9a-f]{64}");
  std::set<std::string> hashes;
  for (const ManifestFile& file : manifest()) {
    SCOPED_TRACE(file.path);
    EXPECT_TRUE(file.path.starts_with(file.dataset + "/"));
    EXPECT_FALSE(file.licence.empty());
    if (!file.url.empty()) {
      EXPECT_TRUE(std::regex_match(file.url, url)) << file.url;
    }
    if (!file.fetchable() && !file.stand_in) {
      EXPECT_FALSE(file.note.empty()) << "by hand, but how?";
    }
    if (!file.sha256.empty()) {
      EXPECT_TRUE(std::regex_match(file.sha256, hash));
      EXPECT_TRUE(hashes.insert(file.sha256).second) << "two files with one checksum";
      EXPECT_GT(file.bytes, 0);
    }
    for (const KnownSubset& subset : file.subsets) EXPECT_TRUE(hashes.insert(subset.sha256).second);
  }
}

TEST(Manifest, EveryFileSetHasItsEntry) {
  for (const auto& [name, set] : dataset_registry().entries()) {
    int count = 0;
    for (const std::string& path : set.info.files) {
      const ManifestFile* file = find_manifest_file(path);
      ASSERT_NE(file, nullptr) << name;
      EXPECT_EQ(file->dataset, set.info.family);
      EXPECT_EQ(file->stand_in, name == "cip_standin");
      count += file->stand_in ? 0 : file->count;
    }
    if (name == set.info.family && name != "mbpp") {  // its test split is a part of the file
      EXPECT_EQ(set.info.official_count, count) << name;
    }
  }
  EXPECT_EQ(find_manifest_file("gsm8k/nothing.jsonl"), nullptr);
  for (const char* name : {"mt_bench", "gsm8k", "humaneval", "humaneval_x", "xsum"})
    EXPECT_THAT(fetchable_datasets(), Contains(name));
  EXPECT_THAT(fetchable_datasets(), ::testing::Not(Contains("cip")));
}

std::string entry(const std::string& fields) {
  return R"({"version":1,"files":[{"dataset":"d","licence":"MIT","count":9,)" + fields + "}]}";
}

TEST(Manifest, StrictReader) {
  const std::string hash(64, 'a'), other(64, 'b');
  const auto good = parse_manifest(
      entry(fmt::format(R"("path":"d/f","url":"https://x.y/f","bytes":3,"sha256":"{}",)"
                        R"("subsets":[{{"count":2,"bytes":1,"sha256":"{}"}}])",
                        hash, other)),
      "m.json");
  ASSERT_EQ(good.size(), 1u);
  EXPECT_TRUE(good[0].fetchable());
  EXPECT_EQ(good[0].subsets.at(0).count, 2);

  const auto refused = [](const std::string& fields) {
    return error_of(ExitCode::kData, [&] { parse_manifest(entry(fields), "m.json"); });
  };
  EXPECT_THAT(refused(R"("path":"../f")"), AllOf(HasSubstr("m.json"), HasSubstr("files[0].path")));
  EXPECT_THAT(refused(R"("path":"a/../../f")"), HasSubstr("files[0].path"));
  EXPECT_THAT(refused(R"("path":"/etc/f")"), HasSubstr("files[0].path"));
  EXPECT_THAT(refused(R"("path":"f","sha256":"XYZ")"), HasSubstr("files[0].sha256"));
  EXPECT_THAT(refused(fmt::format(R"("path":"f","sha256":"{}")", hash)),
              HasSubstr("files[0].bytes"));
  EXPECT_THAT(refused(R"("path":"f","bytes":-1)"), HasSubstr("files[0].bytes"));
  EXPECT_THAT(refused(R"("path":"f","sha26":"")"), HasSubstr("did you mean 'sha256'"));
  EXPECT_THAT(refused(R"("path":"f","subsets":{})"), HasSubstr("must be a list"));
  EXPECT_THAT(refused(R"("path":"f","subsets":[{"count":2}])"), HasSubstr("subsets[0].sha256"));
  EXPECT_THAT(refused(fmt::format(R"("path":"f","subsets":[{{"count":9,"sha256":"{}"}}])", hash)),
              HasSubstr("subsets[0].count"));
  EXPECT_THAT(error_of(ExitCode::kData, [] { parse_manifest(R"({"version":2,"files":[]})", "m"); }),
              HasSubstr("version"));
  const std::string twice =
      R"({"version":1,"files":[{"dataset":"d","licence":"","count":0,"path":"f"},)"
      R"({"dataset":"d","licence":"","count":0,"path":"f"}]})";
  EXPECT_THAT(error_of(ExitCode::kData, [&] { parse_manifest(twice, "m"); }),
              HasSubstr("files[1].path"));
}

ManifestFile known_file(std::string_view official, std::string_view subset) {
  ManifestFile file;
  file.dataset = "gsm8k";
  file.path = "gsm8k/test.jsonl";
  file.url = "https://example.invalid/test.jsonl";
  file.licence = "MIT";
  file.count = 2;
  file.bytes = static_cast<int64_t>(official.size());
  file.sha256 = base::sha256_hex(official);
  file.subsets = {{1, static_cast<int64_t>(subset.size()), base::sha256_hex(subset), ""}};
  return file;
}

TEST(Verify, TellsTheStatesApart) {
  const std::string one = "{\"question\":\"a\",\"answer\":\"#### 1\"}\n";
  const std::string two = one + "{\"question\":\"b\",\"answer\":\"#### 2\"}\n";
  const ManifestFile file = known_file(two, one);
  const TempFolder dir;
  const auto check = [&](std::string_view bytes) {
    dir.write(file.path, bytes);
    return verify_file(file, dir.path());
  };

  const FileCheck missing = verify_file(file, dir.path());
  EXPECT_EQ(missing.state, FileState::kMissing);
  EXPECT_FALSE(missing.is_error());
  EXPECT_THAT(missing.detail, HasSubstr("evalrun data fetch gsm8k"));

  EXPECT_EQ(check(two).state, FileState::kOfficial);
  EXPECT_EQ(check(two).sha256, file.sha256);
  const FileCheck subset = check(one);
  EXPECT_EQ(subset.state, FileState::kSubset);
  EXPECT_EQ(subset.detail, "subset (1 of 2)");
  EXPECT_EQ(subset.count, 1);

  // An own selection is fine as long as it can be read ...
  const FileCheck own = check("{\"question\":\"own\",\"answer\":\"#### 1\"}\n");
  EXPECT_EQ(own.state, FileState::kUnknown);
  EXPECT_EQ(own.count, 1);
  EXPECT_FALSE(own.is_error());

  // ... but not the official bytes with one changed, more rows than there are, or something else.
  std::string damaged = two;
  damaged[14] = 'x';
  EXPECT_THAT(check(damaged).detail, AllOf(HasSubstr("damaged or edited"), HasSubstr(file.sha256),
                                           HasSubstr(base::sha256_hex(damaged))));
  EXPECT_TRUE(check(damaged).is_error());
  EXPECT_THAT(check("<html>not found</html>").detail, HasSubstr("not valid JSON"));
  EXPECT_TRUE(check("<html>not found</html>").is_error());
  EXPECT_TRUE(check(std::string_view(two).substr(0, two.size() - 5)).is_error()) << "truncated";
  EXPECT_STREQ(to_string(check("").state), "contradicts");
}

TEST(Verify, MoreRecordsThanTheOfficialFile) {
  ManifestFile file = known_file("x", "y");
  const TempFolder dir;
  std::string many;
  for (int i = 0; i < 3; ++i)
    many += fmt::format("{{\"question\":\"{}\",\"answer\":\"#### 1\"}}\n", i);
  dir.write(file.path, many);
  const FileCheck check = verify_file(file, dir.path());
  EXPECT_TRUE(check.is_error());
  EXPECT_THAT(check.detail, HasSubstr("3 records"));
}

// A run must not measure on an official file with one byte changed.
TEST(Verify, ADamagedOfficialFileIsNotLoaded) {
  const ManifestFile& entry = *find_manifest_file("gsm8k/test.jsonl");
  const std::string row = "{\"question\":\"q\",\"answer\":\"#### 1\"}\n";
  for (const int64_t bytes : {entry.bytes, entry.subsets.at(0).bytes}) {
    const TempFolder dir;
    std::string text = row + std::string(static_cast<size_t>(bytes) - row.size(), '\n');
    dir.write(entry.path, text);
    const std::string error = error_of(ExitCode::kData, [&] { load_dataset("gsm8k", dir.path()); });
    EXPECT_THAT(error, AllOf(HasSubstr(base::sha256_hex(text)), HasSubstr("data fetch --force")));
    EXPECT_THAT(error, HasSubstr(bytes == entry.bytes ? entry.sha256 : entry.subsets.at(0).sha256));
    dir.write(entry.path, text + "\n");  // another size is another file
    EXPECT_EQ(load_dataset("gsm8k", dir.path()).verification, "unverified");
  }
}

TEST(Verify, StandInIsNamedAsSuch) {
  ManifestFile file = known_file("{\"prompt\":\"p\"}\n", "y");
  file.stand_in = true;
  const TempFolder dir;
  dir.write(file.path, "{\"prompt\":\"p\"}\n");
  EXPECT_EQ(verify_file(file, dir.path()).state, FileState::kStandIn);
}

TEST(Verify, WholeRoot) {
  const TempFolder dir;
  const auto checks = verify_data(dir.path());
  EXPECT_EQ(checks.size(), manifest().size());
  for (const FileCheck& check : checks) EXPECT_EQ(check.state, FileState::kMissing);
  std::filesystem::create_directories(
      dir.file("gsm8k/test.jsonl"));  // a folder where a file belongs
  for (const FileCheck& check : verify_data(dir.path()))
    EXPECT_EQ(check.is_error(), check.file.path == "gsm8k/test.jsonl") << check.file.path;
  error_of(ExitCode::kUsage, [] { verify_data(""); });
  EXPECT_THAT(error_of(ExitCode::kData, [&] { verify_data(dir.file("nowhere")); }),
              HasSubstr("nowhere"));
}

}  // namespace
}  // namespace evalrun::datasets
