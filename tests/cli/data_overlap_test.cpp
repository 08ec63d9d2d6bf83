// evalrun data overlap: test prompts in a training text, reported and cut out.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kQuestion =
    "A farmer had 12 hens, and every hen laid 3 eggs on each of 5 days; how many eggs were there?";

class DataOverlap : public CommandTest {
 protected:
  void SetUp() override {
    folder_.write("data/gsm8k/test.jsonl",
                  json({{"question", kQuestion}, {"answer", "#### 180"}}).dump() + "\n" +
                      json({{"question", "1 + 1?"}, {"answer", "#### 2"}}).dump() + "\n");
    const auto line = [](const std::string& text) {
      return json({{"id", "x"},
                   {"source", "s"},
                   {"messages", json::array({{{"role", "user"}, {"content", text}}})}})
                 .dump() +
             "\n";
    };
    folder_.write("train.jsonl", line("Sort a list of words by their length.") +
                                     line("please solve: a FARMER had 12 hens and every hen laid "
                                          "3 eggs on each of 5 days") +
                                     line("Why is the sky blue at noon and red in the evening?"));
  }
  ProgramResult overlap(std::vector<std::string> more) {
    more.insert(more.begin(), {"data", "overlap", "train.jsonl"});
    return run(more);
  }
};

TEST_F(DataOverlap, IsReportedBySet) {
  const ProgramResult text = overlap({"--data-root", "data"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("3 documents"), HasSubstr("line 2: gsm8k/0"),
                              HasSubstr("50.0 %"), HasSubstr("no prompt of samples/chat"),
                              HasSubstr("no file is there: mt_bench")));
  const ProgramResult result = overlap({"--data-root", "data", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["gram_words"], 13);
  EXPECT_EQ(report["texts"][0]["sha256"], base::sha256_file(folder_.file("train.jsonl")));
  EXPECT_EQ(report["texts"][0]["overlapping_documents"], 1);
  EXPECT_EQ(report["texts"][0]["examples"],
            json::array({{{"line", 2}, {"set", "gsm8k"}, {"prompt", "gsm8k/0"}}}));
  int found = 0;
  for (const json& set : report["texts"][0]["sets"]) {
    if (set["set"] == "gsm8k") {
      EXPECT_EQ(set["overlapping"], 1);
      EXPECT_EQ(set["prompts"], 2);
      EXPECT_EQ(set["share"], 0.5);
      ++found;
    } else {
      EXPECT_EQ(set["overlapping"], 0) << set;
    }
  }
  EXPECT_EQ(found, 1);
}

TEST_F(DataOverlap, CleanLinesAreWritten) {
  const ProgramResult result =
      overlap({"--data-root", "data", "--tasks", "gsm8k", "--out", "clean.jsonl"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("clean.jsonl: 2 lines, without the 1 that overlap"));
  const auto lines = base::split(folder_.read("train.jsonl"), '\n');
  EXPECT_EQ(folder_.read("clean.jsonl"), lines[0] + "\n" + lines[2] + "\n");
  const ProgramResult again =
      run({"data", "overlap", "clean.jsonl", "--data-root", "data", "--tasks", "gsm8k", "--json"});
  EXPECT_EQ(json::parse(again.out)["texts"][0]["overlapping_documents"], 0);
  // A list of one's own is a set, too.
  folder_.write("own.jsonl", json({{"prompt", "Sort a list of words by their length."}}).dump());
  const ProgramResult own = overlap({"--tasks", "jsonl:own.jsonl", "--json"});
  EXPECT_EQ(json::parse(own.out)["texts"][0]["sets"][0]["overlapping"], 1) << own.err;
}

TEST_F(DataOverlap, Usage) {
  expect_refused(run({"data", "overlap"}), 2, "files");
  expect_refused(overlap({"--tasks", "gsm8"}), 2, "--tasks: unknown data set 'gsm8'");
  expect_refused(overlap({"--tasks", "gsm8k"}), 2, "--data-root");
  expect_refused(overlap({"other.jsonl", "--out", "clean.jsonl"}), 2, "--out");
  expect_refused(overlap({"--out", "nowhere/clean.jsonl"}), 2, "--out nowhere/clean.jsonl");
  expect_refused(run({"data", "overlap", "nothing.jsonl"}), 7, "nothing.jsonl");
  folder_.write("broken.jsonl", "{\"prompt\": \"x\"}\n{\n");
  expect_refused(run({"data", "overlap", "broken.jsonl", "--out", "clean.jsonl"}), 7,
                 "broken.jsonl: line 2");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("clean.jsonl")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("clean.jsonl.tmp")));
}

}  // namespace
}  // namespace evalrun::tests
