// evalrun judge over a stored run: requests written, replies recorded, grades in the report; a
// judge that refuses; two arms compared.
#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"
#include "tests/evaluators/judge_files.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class JudgeCommand : public CommandTest {
 protected:
  void SetUp() override {
    write_prompts(folder_, 2);
    const ProgramResult result = run(run_arguments(8, {"--label", "first"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::filesystem::create_directories(folder_.file("root/mt_bench/reference_answer"));
    folder_.write("root/mt_bench/judge_prompts.jsonl", judge_prompts_file());
    folder_.write("root/mt_bench/reference_answer/gpt-4.jsonl", judge_references_file());
  }
  ProgramResult judge(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "judge");
    arguments.insert(arguments.end(), {"--task", "jsonl", "--data-root", "root", "--judge-model",
                                       "m-1", "--cache", "judge.db", "--db", "r.db"});
    return run(std::move(arguments));
  }
};

TEST_F(JudgeCommand, RequestsRepliesGradesAndReport) {
  ASSERT_EQ(judge({"first", "--requests", "open.jsonl"}).exit_code, 0);
  const std::vector<json> open = parse_lines(base::read_file(folder_.file("open.jsonl")));
  ASSERT_EQ(open.size(), 2u) << "three arms gave the same answers to two prompts";
  std::string replies;
  for (const json& request : open) {
    EXPECT_THAT(request["user"].get<std::string>(), HasSubstr("grade: "));
    replies += json{{"id", request["id"]}, {"reply", "Rating: [[8]]"}}.dump() + "\n";
  }
  // One of two is recorded: that one is kept, and the gap is an error that says how to go on.
  folder_.write("replies.jsonl", replies.substr(0, replies.find('\n') + 1));
  const ProgramResult half = judge({"first", "--replies", "replies.jsonl"});
  EXPECT_EQ(half.exit_code, 7);
  EXPECT_THAT(half.err, AllOf(HasSubstr("1 of 2 questions unanswered"), HasSubstr("go on")));
  folder_.write("replies.jsonl", replies);
  const ProgramResult whole = judge({"first", "--replies", "replies.jsonl", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const json document = json::parse(whole.out);
  EXPECT_EQ(document["verdicts"]["cached"], 1);
  EXPECT_EQ(document["verdicts"]["answered"], 1);
  ASSERT_EQ(document["arms"].size(), 3u);
  for (const json& arm : document["arms"]) EXPECT_EQ(arm["mean"], 8.0);
  EXPECT_EQ(document["arms"][1]["difference"]["mean"], 0.0);
  EXPECT_EQ(document["arms"][1]["difference"]["prompts"], 2);
  EXPECT_EQ(document["arms"][1]["difference"]["prompts_differing"], 0);
  EXPECT_TRUE(document["arms"][1]["difference"]["lo"].is_null()) << "equal on every prompt";
  // Everything is known: nobody has to be named again, and the report has the grades.
  EXPECT_THAT(judge({"first"}).out, AllOf(HasSubstr("2 from the cache"), HasSubstr("8.00")));
  EXPECT_THAT(run({"report", "first", "--db", "r.db"}).out, HasSubstr("mt_bench_judge"));
  const ProgramResult pair = judge({"first", "first", "--arm-b", "ar (A/A)", "--json"});
  ASSERT_EQ(pair.exit_code, 0) << pair.err;
  EXPECT_EQ(json::parse(pair.out)["overall"]["identical"], 2);
  EXPECT_EQ(json::parse(pair.out)["overall"]["tie"], 2);
}

TEST_F(JudgeCommand, AServerThatGradesAndOneThatRefuses) {
  for (const char* proxy : {"http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"})
    ::unsetenv(proxy);
  ::setenv("OPENAI_API_KEY", "sk-secret", 1);
  {
    JudgeServer refusing([](int, const std::string& request) {
      return http_response(401, "no such key: " + request.substr(request.find("Bearer"), 16));
    });
    const ProgramResult refused = judge({"first", "--endpoint", refusing.endpoint()});
    EXPECT_EQ(refused.exit_code, 7);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("HTTP 401"), Not(HasSubstr("sk-"))));
  }
  JudgeServer server([](int n, const std::string&) {
    return n == 0 ? http_response(429, "") : completion("[[6]]");
  });
  const ProgramResult result = judge(
      {"first", "--endpoint", server.endpoint(), "--retry-wait", "0.01", "--max-tokens", "300"});
  ::unsetenv("OPENAI_API_KEY");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(server.first_request(), HasSubstr(R"("max_tokens":300)"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 asked now"), HasSubstr("6.00")));
  EXPECT_EQ(server.requests(), 3);
  for (const char* file : {"r.db", "judge.db"})
    EXPECT_THAT(base::read_file(folder_.file(file)), Not(HasSubstr("sk-secret"))) << file;
}

TEST_F(JudgeCommand, Mistakes) {
  expect_refused(judge({"first"}), 2, "--endpoint");
  expect_refused(judge({"frist"}), 2, "first");
  expect_refused(judge({"first", "--arm", "arr"}), 2, "did you mean 'ar'");
  expect_refused(judge({"first", "--replies", "no.jsonl"}), 7, "no.jsonl");
  expect_refused(
      run({"judge", "first", "--judge-model", "m", "--data-root", "root", "--db", "r.db"}), 2,
      "it holds jsonl:");
  expect_refused(run({"judge", "first", "--judge-model", "m", "--data-root", ".", "--db", "r.db"}),
                 7, "judge_prompts.jsonl");
  expect_refused(run({"judge", "first", "--db", "r.db"}), 2, "--judge-model");
}

}  // namespace
}  // namespace evalrun::tests
