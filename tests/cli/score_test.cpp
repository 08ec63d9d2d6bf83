// evalrun score: generations made elsewhere.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Score : public CommandTest {
 protected:
  static constexpr int kRows = 600;

  void SetUp() override {
    std::filesystem::create_directories(folder_.file("data/gsm8k"));
    std::string rows;
    for (int i = 0; i < kRows; ++i)
      rows += json{{"question", fmt::format("What is {} + 1?", i)},
                   {"answer", fmt::format("Add.\n#### {}", i + 1)}}
                  .dump() +
              "\n";
    folder_.write("data/gsm8k/test.jsonl", rows);
  }
  // Two samples a row: the first as the reference has it, the second right in value only, but for
  // every third row.
  std::string generations() {
    std::string lines;
    for (int i = 0; i < kRows; ++i) {
      lines +=
          json{{"id", fmt::format("gsm8k/{}", i)}, {"text", fmt::format("#### {}", i + 1)}}.dump() +
          "\n";
      lines += json{{"id", fmt::format("gsm8k/{}", i)},
                    {"sample", 1},
                    {"text", i % 3 == 0 ? "I do not know." : fmt::format("It is {}.0 ok", i + 1)}}
                   .dump() +
               "\n";
    }
    return lines;
  }
  ProgramResult score(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"score", "--task",        "gsm8k",  "--data-root",
                                          "data",  "--generations", "g.jsonl"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(Score, AThousandGenerationsWithOneBrokenLine) {
  std::string lines = generations();
  const size_t at = lines.find("{\"id\":\"gsm8k/100\"");
  ASSERT_NE(at, std::string::npos);
  lines.insert(at, "{\"id\": \"gsm8k/100\", \"text\": \n");
  folder_.write("g.jsonl", lines);
  const ProgramResult result = score({"--json"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("g.jsonl: line 201"));
  const std::vector<json> rows = parse_lines(result.out);
  ASSERT_EQ(rows.size(), 2u * kRows);
  for (int i = 0; i < kRows; ++i) {
    const json& first = rows[static_cast<size_t>(2 * i)];
    const json& second = rows[static_cast<size_t>(2 * i + 1)];
    EXPECT_EQ(first["id"], fmt::format("gsm8k/{}", i));
    EXPECT_EQ(first["sample"], 0);
    EXPECT_EQ(first["evaluator"], "gsm8k@evalrun");
    EXPECT_EQ(first["status"], "ok");
    EXPECT_EQ(first["extracted"], std::to_string(i + 1));
    EXPECT_EQ(first["value"], 1.0);
    EXPECT_EQ(first["strict"], 1.0);
    EXPECT_EQ(first["flexible"], 1.0);
    EXPECT_EQ(second["sample"], 1);
    EXPECT_EQ(second["value"], i % 3 == 0 ? 0.0 : 1.0);
    EXPECT_EQ(second["flexible"], 0.0);
    EXPECT_EQ(second["strict"], 0.0);
  }
}

TEST_F(Score, PrintsATable) {
  folder_.write("g.jsonl", generations());
  const ProgramResult result = score({"--jobs", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("600 of 600 prompts, 1200 generations"));
  // Mean over prompts of (1 + 0) / 2 for a third of them and 1 for the others.
  EXPECT_THAT(result.out, HasSubstr("gsm8k@evalrun             0.8333"));
  EXPECT_THAT(result.out, HasSubstr("gsm8k_strict@lm-eval-3    0.5000"));
  EXPECT_THAT(result.out, HasSubstr("1200 ok"));
  EXPECT_EQ(result.err, "");
}

TEST_F(Score, CountsWhatIsMissing) {
  folder_.write("g.jsonl", "{\"id\": \"gsm8k/3\", \"text\": \"4\"}\n");
  const ProgramResult result = score({});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 of 600 prompts, 1 generations"));
}

TEST_F(Score, WritesTheFilesOfOtherHarnesses) {
  folder_.write("g.jsonl", generations());
  for (const char* format : {"lm-eval", "spec-bench", "human-eval"}) {
    ASSERT_EQ(score({"--export", format, "--out", "out.jsonl"}).exit_code, 0);
    const auto rows = parse_lines(folder_.read("out.jsonl"));
    EXPECT_EQ(rows.size(), std::string(format) == "lm-eval"      ? 6u * kRows
                           : std::string(format) == "spec-bench" ? 1u * kRows
                                                                 : 2u * kRows);
  }
}

TEST_F(Score, OwnPromptsAndEvaluators) {
  folder_.write("mine.jsonl",
                "{\"id\": 1, \"prompt\": \"Say it\", \"reference\": \"the cat sat\"}\n"
                "{\"id\": 2, \"prompt\": \"Say it\"}\n");
  folder_.write("g.jsonl",
                "{\"id\": 1, \"text\": \"the cat\"}\n{\"id\": 2, \"text\": \"the cat\"}\n");
  const auto with = [&](const std::string& evaluator) {
    return run({"score", "--task", "jsonl:mine.jsonl", "--generations", "g.jsonl", "--json",
                "--evaluator", evaluator});
  };
  const ProgramResult result = with("rougeL@pltrdy-1.0.1,bleu");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> rows = parse_lines(result.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[0]["value"].get<double>(), 0.8, 1e-8);
  EXPECT_GT(rows[0]["scores"]["bleu@sacrebleu-2.6.0"].get<double>(), 10);
  EXPECT_EQ(rows[1]["status"], "no reference");
  EXPECT_TRUE(rows[1]["value"].is_null());
  expect_refused(with("rougeL"), 2, "several conventions");
  expect_refused(with("rougeM"), 2, "rougeM");
  expect_refused(with("answer_nll"), 2, "evalrun run --evaluators");
}

TEST_F(Score, RefusesWhatItCannotDo) {
  folder_.write("g.jsonl", "{\"id\": \"gsm8k/3\", \"text\": \"4\"}\n");
  expect_refused(score({"--export", "lm-eval"}), 2, "--out");
  expect_refused(score({"--export", "csv", "--out", "x"}), 2, "csv");
  expect_refused(run({"score", "--task", "gsm9k", "--generations", "g.jsonl"}), 2, "gsm8k");
  expect_refused(run({"score", "--task", "samples/chat", "--generations", "g.jsonl"}), 2,
                 "--evaluator");
  expect_refused(
      run({"score", "--task", "gsm8k", "--data-root", "data", "--generations", "absent.jsonl"}), 7,
      "absent.jsonl");
  folder_.write("g.jsonl", "");
  expect_refused(score({}), 7, "g.jsonl");
}

}  // namespace
}  // namespace evalrun::tests
