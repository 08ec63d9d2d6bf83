// How data sets are named: parts, options, lists, and the one spelling results are stored under.
#include "datasets/spec.h"

#include <gmock/gmock.h>

#include "tests/datasets/test_files.h"

namespace evalrun::datasets {
namespace {

using base::ExitCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refused(const std::string& spec) {
  return error_of(ExitCode::kUsage, [&] { checked_dataset_spec(spec); });
}

TEST(Spec, PartsInTheSetsOrder) {
  EXPECT_EQ(checked_dataset_spec("humaneval_x"), "humaneval_x");
  EXPECT_EQ(checked_dataset_spec(" humaneval_x[rust] "), "humaneval_x[rust]");
  EXPECT_EQ(checked_dataset_spec("humaneval_x[ rust , cpp ]"), "humaneval_x[cpp,rust]");
  EXPECT_EQ(checked_dataset_spec("humaneval_x[rust,go,js,java,cpp,python]"), "humaneval_x");
  const DatasetSpec spec = parse_dataset_spec("humaneval_x[cpp,go]");
  EXPECT_TRUE(spec.wants("go"));
  EXPECT_FALSE(spec.wants("rust"));
}

TEST(Spec, Mistakes) {
  EXPECT_THAT(refused("humaneval_y"), HasSubstr("did you mean 'humaneval_x'"));
  EXPECT_THAT(refused("humaneval_x[rost]"), HasSubstr("did you mean 'rust'"));
  EXPECT_THAT(refused("humaneval_x[]"), HasSubstr("unknown part ''"));
  EXPECT_THAT(refused("humaneval_x[go,go]"), HasSubstr("named twice"));
  EXPECT_THAT(refused("humaneval_x[go"), HasSubstr("without ']'"));
  EXPECT_THAT(refused("humaneval_x[go]rust"), HasSubstr("expected ':'"));
  EXPECT_THAT(refused("gsm8k[go]"), HasSubstr("has no parts"));
  EXPECT_THAT(refused(""), HasSubstr("unknown data set"));
}

TEST(Spec, FilesOfOnesOwnKeepColonsAndCommas) {
  EXPECT_EQ(checked_dataset_spec("jsonl:a:b,c=d[e].jsonl"), "jsonl:a:b,c=d[e].jsonl");
  EXPECT_EQ(checked_dataset_spec("my/a.jsonl"), "jsonl:my/a.jsonl") << "the prefix is optional";
  EXPECT_THAT(split_dataset_list("a.jsonl,gsm8k"), ElementsAre("jsonl:a.jsonl", "gsm8k"));
  EXPECT_THAT(refused("jsonl:"), HasSubstr("jsonl:FILE"));
  const TempFolder dir;
  const std::string path = dir.write("a:b,c.jsonl", R"({"id":"x","prompt":"y"})");
  EXPECT_EQ(load_dataset("jsonl:" + path, "").task, "jsonl:" + path);
}

TEST(Spec, Lists) {
  EXPECT_THAT(split_dataset_list("gsm8k,xsum"), ElementsAre("gsm8k", "xsum"));
  EXPECT_THAT(split_dataset_list("a[x,y]:k=1,l=2, b ,c:m=3,d"),
              ElementsAre("a[x,y]:k=1,l=2", "b", "c:m=3", "d"));
  EXPECT_THAT(split_dataset_list("jsonl:a.jsonl,gsm8k"), ElementsAre("jsonl:a.jsonl", "gsm8k"));
  EXPECT_THAT(split_dataset_list(""), ElementsAre(""));
  const TempFolder dir;
  const std::string path = dir.write("a,b.jsonl", "x");
  EXPECT_THAT(split_dataset_list("jsonl:" + path + ",gsm8k"),
              ElementsAre("jsonl:" + path, "gsm8k"));
}

}  // namespace
}  // namespace evalrun::datasets
