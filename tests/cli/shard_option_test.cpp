// --shard of commands that go through a list: the outputs of all shards are that of the whole.
#include <set>

#include "tests/cli/cli_test.h"
#include "tests/evaluators/judge_files.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

class ShardsOfLists : public CommandTest {
 protected:
  // Lines of the whole, and of shards 1 to 3 together. None is empty.
  void expect_same_lines(const std::vector<std::string>& command) {
    const auto lines = [](const std::string& text) {
      std::vector<std::string> all = base::split(text, '\n');
      std::erase(all, "");
      return std::multiset<std::string>(all.begin(), all.end());
    };
    const ProgramResult whole = run(command);
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    std::string parts;
    for (const char* shard : {"1/3", "2/3", "3/3"}) {
      std::vector<std::string> words = command;
      words.insert(words.end(), {"--shard", shard});
      const ProgramResult part = run(words);
      ASSERT_EQ(part.exit_code, 0) << part.err;
      EXPECT_NE(part.out, "") << shard;
      parts += part.out;
    }
    EXPECT_EQ(lines(parts), lines(whole.out));
  }
};

TEST_F(ShardsOfLists, Generate) {
  std::string text;
  for (int i = 0; i < 7; ++i)
    text += json{{"id", i}, {"prompt", fmt::format("the cat {} sat", i)}}.dump() + "\n";
  folder_.write("in.jsonl", text);
  // Drawn: the seed is the line's, not its place in the shard.
  expect_same_lines({"generate", "-m", tiny_model(), "--in", "in.jsonl", "-n", "8", "--temperature",
                     "1", "--methods", "ar,pld"});
}

TEST_F(ShardsOfLists, ScoreKeepsSamplesOfAPromptTogether) {
  std::string rows, answers;
  for (int i = 0; i < 10; ++i) {
    rows += json{{"question", fmt::format("{}?", i)}, {"answer", fmt::format("#### {}", i)}}.dump();
    rows += "\n";
    for (int sample = 0; sample < 2; ++sample)
      answers += json{{"id", fmt::format("gsm8k/{}", i)},
                      {"sample", sample},
                      {"text", fmt::format("#### {}", i + sample)}}
                     .dump() +
                 "\n";
  }
  folder_.write("data/gsm8k/test.jsonl", rows);
  folder_.write("g.jsonl", answers);
  expect_same_lines(
      {"score", "--task", "gsm8k", "--data-root", "data", "--generations", "g.jsonl", "--json"});
  const ProgramResult part = run({"score", "--task", "gsm8k", "--data-root", "data",
                                  "--generations", "g.jsonl", "--json", "--shard", "2/3"});
  std::map<std::string, int> samples;
  for (const json& line : parse_lines(part.out)) ++samples[line["id"]];
  EXPECT_EQ(samples.size(), 3u);  // of rows 1, 4 and 7
  for (const auto& [id, n] : samples) EXPECT_EQ(n, 2) << id;
}

TEST_F(ShardsOfLists, CaptureGoesOnWithTheRest) {
  std::string text;
  for (int i = 0; i < 5; ++i) text += "{\"prompt\": \"the cat sat\"}\n";
  folder_.write("in.jsonl", text);
  const auto capture = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"capture", "-m", tiny_model(), "--in", "in.jsonl",
                                      "-n",      "4",  "--out",      out};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out) : json();
  };
  EXPECT_EQ(capture("one", {"--shard", "1/2"})["sequences"], 3);
  EXPECT_EQ(capture("two", {"--shard", "2/2"})["sequences"], 2);
  const json rest = capture("one", {});
  EXPECT_EQ(rest["sequences"], 5);
  EXPECT_EQ(rest["sequences_now"], 2);
}

TEST_F(ShardsOfLists, VerdictsOfTwoJudges) {
  write_prompts(folder_, 4);
  ASSERT_EQ(run(run_arguments(8, {"--label", "first"})).exit_code, 0);
  folder_.write("root/mt_bench/judge_prompts.jsonl", judge_prompts_file());
  folder_.write("root/mt_bench/reference_answer/gpt-4.jsonl", judge_references_file());
  const auto judge = [&](const std::string& cache, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"judge", "first", "--task",  "jsonl", "--data-root",   "root",
                                      "--db",  "r.db",  "--cache", cache,   "--judge-model", "m-1"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  ASSERT_EQ(judge("no.db", {"--requests", "open.jsonl"}).exit_code, 0);
  std::string replies;
  for (const json& request : parse_lines(folder_.read("open.jsonl")))
    replies += json{{"id", request["id"]}, {"reply", "Rating: [[8]]"}}.dump() + "\n";
  folder_.write("replies.jsonl", replies);
  // Four questions, two each.
  for (const char* part : {"1", "2"}) {
    const ProgramResult result =
        judge(fmt::format("{}.db", part),
              {"--shard", fmt::format("{}/2", part), "--replies", "replies.jsonl", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out)["verdicts"]["answered"], 2);
  }
  const ProgramResult all = judge("all.db", {"--take", "1.db", "--take", "2.db", "--json"});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(json::parse(all.out)["verdicts"]["cached"], 4) << "nobody is asked again";
  EXPECT_EQ(json::parse(all.out)["verdicts"]["unanswered"], 0);
}

TEST_F(ShardsOfLists, WrongShards) {
  folder_.write("in.jsonl", "{\"prompt\": \"the cat\"}\n");
  for (const char* shard : {"0/3", "4/3", "1", "a/b", "1/0"})
    expect_refused(run({"generate", "-m", tiny_model(), "--in", "in.jsonl", "--shard", shard}), 2,
                   "--shard");
}

}  // namespace
}  // namespace evalrun::tests
