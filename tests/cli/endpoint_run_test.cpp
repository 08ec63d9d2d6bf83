// `evalrun run` against a small server that answers POST /v1/completions from a table.
#include <map>
#include <string>

#include "tests/cli/cli_test.h"
#include "tests/endpoints/scripted_server.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

// The same answer to equal prompts, in pieces, without usage.
ScriptedReply answer_from_table(const SeenRequest& request) {
  if (request.path == "/v1/models") return json_reply(R"({"data": [{"id": "small"}]})");
  if (request.path != "/v1/completions") return json_reply("{}", 404);
  static const std::map<std::string, std::vector<std::string>> kAnswers = {
      {"one two", {" three", " four five", " six"}}, {"a b", {" c", " d", " e"}}};
  const auto found = kAnswers.find(json::parse(request.body).at("prompt").get<std::string>());
  if (found == kAnswers.end()) return json_reply(R"({"error": {"message": "unknown"}})", 400);
  const auto event = [](const std::string& text, const std::string& reason) {
    return fmt::format(
        R"({{"model": "small", "choices": [{{"index": 0, "text": {}, "finish_reason": {}}}]}})",
        json(text).dump(), reason);
  };
  std::vector<std::string> events;
  for (const std::string& text : found->second) events.push_back(event(text, "null"));
  events.push_back(event("", R"("length")"));
  events.emplace_back("[DONE]");
  return event_reply(events, 10);
}

class EndpointRunCommand : public CommandTest {
 protected:
  EndpointRunCommand() : server_(answer_from_table) {
    folder_.write("prompts.jsonl",
                  "{\"id\": \"p0\", \"prompt\": \"one two\", \"chat\": false}\n"
                  "{\"id\": \"p1\", \"prompt\": \"a b\", \"chat\": false}\n");
  }
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {
        "run", "-m", tiny_gguf(), "--db", "r.db", "--tasks", "jsonl:prompts.jsonl",
        "-n",  "16", "-w",        "0",    "-t",   "1"};
    for (const char* name : {"plain", "spec"})
      words.insert(words.end(), {"--endpoint", fmt::format("{}={},api=openai,cache=declared-off",
                                                           name, server_.url())});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ScriptedServer server_;
};

TEST_F(EndpointRunCommand, MeasuresServersAndResumes) {
  const ProgramResult result = run(arguments({"--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = json::parse(result.out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("method"), "plain");
  EXPECT_EQ(rows[0].at("role"), "baseline");
  for (const json& row : rows) {
    EXPECT_EQ(row.at("model"), "small") << row;
    EXPECT_EQ(row.at("lossless"), "none");
    EXPECT_TRUE(row.at("tau").is_null()) << "the server counts nothing";
    EXPECT_EQ(row.at("endpoint").at("api"), "openai");
    EXPECT_EQ(row.at("endpoint").at("tokens"), "from text");
    EXPECT_TRUE(row.at("tok_s").is_number() && row.at("tok_s").get<double>() > 0);
  }
  EXPECT_EQ(rows[2].at("identical_share"), 1);
  const size_t asked = server_.seen().size();
  const ProgramResult again = run(arguments());
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("nothing was measured again"));
  EXPECT_THAT(again.out, HasSubstr("Measured over HTTP: plain (API openai"));
  EXPECT_EQ(server_.seen().size(), asked);
}

TEST_F(EndpointRunCommand, CheckMeasuresTheServersOfItsBaseline) {
  ASSERT_EQ(run(arguments()).exit_code, 0);
  ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  const size_t asked = server_.seen().size();
  const ProgramResult result =
      run({"check", "--db", "r.db", "--max-extra-runs", "0", "--verdict", "v.json"});
  // Two prompts decide nothing about speed; what matters is that they can be compared.
  EXPECT_THAT(result.exit_code, ::testing::AnyOf(0, 1, 4)) << result.err << result.out;
  const json verdict = json::parse(folder_.read("v.json"));
  for (const json& check : verdict.at("verdicts"))
    EXPECT_NE(check.at("outcome"), "not comparable") << check;
  EXPECT_GT(server_.seen().size(), asked);
}

TEST_F(EndpointRunCommand, SaysWhatIsWrongWithTheCommandLine) {
  expect_refused(run(arguments({"--baseline", "nobody"})), 2, "nobody");
  expect_refused(run(arguments({"--batch", "2"})), 2, "with endpoints");
  expect_refused(run(arguments({"--replay"})), 2, "with endpoints");
}

}  // namespace
}  // namespace evalrun::tests
