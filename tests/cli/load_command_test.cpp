// evalrun load: what it prints of a file, and what it refuses before any server is asked.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

class LoadCommand : public CommandTest {
 protected:
  LoadCommand() { write_prompts(folder_, 2); }
  ProgramResult load(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"load", "-m", tiny_model(), "--tasks", "jsonl:prompts.jsonl"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

TEST_F(LoadCommand, FiguresOfAFile) {
  const std::string file = EVALRUN_TEST_DATA "/load/small.jsonl";
  const ProgramResult text = run({"load", "--from", file});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("2 clients"));
  EXPECT_THAT(text.out, HasSubstr("20 requests/s"));
  const ProgramResult result = run({"load", "--from", file, "--json", "--slo", "ttft=50ms"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  ASSERT_EQ(report["rows"].size(), 4u);
  const json &plain = report["rows"][0], &spec = report["rows"][1];
  EXPECT_EQ(spec["server"], "spec");
  // 14 tokens in 80 ms and in 65 ms.
  EXPECT_NEAR(plain["tok_s"].get<double>(), 14 / 0.080, 1e-6);
  EXPECT_NEAR(spec["tok_s"].get<double>(), 14 / 0.065, 1e-6);
  EXPECT_NEAR(spec["tok_s_ratio"].get<double>(), 80.0 / 65, 1e-9);
  EXPECT_NEAR(spec["itl_ms"]["p50"].get<double>(), 7.5, 1e-9);
  EXPECT_NEAR(spec["gap_ms"]["p50"].get<double>(), 0, 1e-9);
  EXPECT_EQ(spec["alpha"], 0.5);
  EXPECT_EQ(spec["good_share"], 1);
  EXPECT_EQ(plain["saturated"], nullptr);
}

TEST_F(LoadCommand, AServerThatIsDownIsNamed) {
  expect_refused(load({"--endpoint", "a=http://127.0.0.1:9,cache=kept"}), 7, "http://127.0.0.1:9");
}

TEST_F(LoadCommand, BadInputIsRefused) {
  expect_refused(load({}), 2, "--endpoint");
  expect_refused(load({"--endpoint", "a=http://127.0.0.1:9", "--endpoint", "a=http://127.0.0.1:8"}),
                 2, "'a'");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--concurrency", "0"}, {"--concurrency", "1,x"}, {"--rate", "often"}, {"--rate", "0"}};
  for (const auto& [option, value] : wrong)
    expect_refused(load({"--endpoint", "a=http://127.0.0.1:9", option, value}), 2, option);
  expect_refused(load({"--endpoint", "a=http://127.0.0.1:9", "--max-requests", "3"}), 2,
                 "--max-requests");
  folder_.write("text.txt", "no result\n");
  expect_refused(run({"load", "--from", "text.txt"}), 7, "line 1");
}

}  // namespace
}  // namespace evalrun::tests
