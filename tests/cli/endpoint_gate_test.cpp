// `evalrun check` of servers that stream at a speed of their own: the same one at another port, one
// that became slower, one that is gone. The decision itself: tests/reports/gate.
#include <memory>
#include <string>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"
#include "tests/endpoints/llama_events.h"
#include "tests/endpoints/scripted_server.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One token after each wait, always the same ones.
std::unique_ptr<ScriptedServer> server_of(int wait_ms, const std::string& model = "m.gguf") {
  return std::make_unique<ScriptedServer>([=](const SeenRequest& request) {
    if (request.path == "/v1/models")
      return json_reply(fmt::format(R"({{"data": [{{"id": "{}"}}]}})", model));
    if (request.path != "/completion") return json_reply("{}");
    std::vector<std::string> events;
    for (int i = 1; i <= 7; ++i) events.push_back(llama_piece("x", std::to_string(2 + i), i));
    ScriptedReply reply = event_reply(events, wait_ms);
    const std::string last = llama_last(7);
    reply.pieces.push_back({fmt::format("data: {}\n\n", last), 0});
    return reply;
  });
}

class EndpointGate : public CommandTest {
 protected:
  void SetUp() override {
    std::string prompts;
    for (int i = 0; i < 6; ++i)
      prompts += fmt::format(R"({{"id": "p{}", "prompt": "word {}", "chat": false}})", i, i) + "\n";
    folder_.write("prompts.jsonl", prompts);
  }
  static std::string endpoint(const std::string& name, const ScriptedServer& server) {
    return fmt::format("{}={},api=llama", name, server.url());
  }
  void save(const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "run", "-m",     tiny_gguf(), "--db", "r.db", "--tasks", "jsonl:prompts.jsonl",
        "-n",  "16",     "-w",        "0",    "-t",   "1",       "-r",
        "2",   "--no-aa"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  }
  ProgramResult check(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"check", "--db", "r.db", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  // Of the verdict on speed.
  static json speed_of(const ProgramResult& result) {
    const json document = json::parse(result.out);  // outlives the loop
    for (const json& check : document.at("verdicts"))
      if (check.at("metric") == "speed") return check;
    return {};
  }
};

TEST_F(EndpointGate, TenPercentSlowerIsRedAndAnotherPortIsGreen) {
  const auto steady = server_of(10);
  auto server = server_of(10);
  save({"--endpoint", endpoint("steady", *steady), "--endpoint", endpoint("server", *server)});
  server = server_of(10);
  const ProgramResult same = check({"--endpoint", "server=" + server->url()});
  EXPECT_EQ(same.exit_code, 0) << same.err << same.out;
  EXPECT_EQ(speed_of(same).at("method"), "server");
  EXPECT_THAT(speed_of(same).at("outcome"), ::testing::AnyOf("ok", "inconclusive")) << same.out;
  server = server_of(11);
  const ProgramResult slow = check({"--endpoint", endpoint("server", *server)});
  EXPECT_EQ(slow.exit_code, 1) << slow.err << slow.out;
  // Beside other tests the steady one may have become faster, which is then said, too.
  EXPECT_THAT(speed_of(slow).at("reason").get<std::string>(),
              AllOf(HasSubstr("server slower"), HasSubstr(": speed against steady -")));
  EXPECT_THAT(json::parse(slow.out).at("note").get<std::string>(), HasSubstr("confirmed"));
}

TEST_F(EndpointGate, OneServerIsJudgedByEvalrunsOwnPlainDecoding) {
  auto server = server_of(2);
  save({"--endpoint", endpoint("server", *server) + ",start=0.2", "--methods", "ar"});
  // A tiny model's steps vary by tens of percent beside other tests.
  const std::vector<std::string> margin = {"--max-regression", "60%", "--max-extra-runs", "0"};
  const auto against_ar = [&](const ScriptedServer& now) {
    std::vector<std::string> words = margin;
    words.insert(words.end(), {"--endpoint", "server=" + now.url()});
    return check(words);
  };
  const ProgramResult same = against_ar(*server);
  EXPECT_EQ(same.exit_code, 0) << same.err << same.out;
  EXPECT_THAT(speed_of(same).at("reason").get<std::string>(), HasSubstr("speed against ar"));
  server = server_of(20);
  const ProgramResult slow = against_ar(*server);
  EXPECT_EQ(slow.exit_code, 1) << slow.err << slow.out;
  server.reset();
  const ProgramResult gone = check({});
  EXPECT_EQ(gone.exit_code, 7) << gone.err;
  EXPECT_THAT(gone.err, AllOf(HasSubstr("server"), HasSubstr("--endpoint NAME=URL")));
  server = server_of(2, "other.gguf");
  const ProgramResult other = against_ar(*server);
  EXPECT_EQ(other.exit_code, 3) << other.err;
  EXPECT_THAT(other.out, HasSubstr("server: model was m.gguf, is other.gguf"));
}

TEST_F(EndpointGate, AServerAloneIsRefusedBeforeAnythingIsMeasured) {
  const auto server = server_of(2);
  save({"--endpoint", endpoint("server", *server)});
  const size_t asked = server->seen().size();
  for (const std::vector<std::string>& words : {std::vector<std::string>{}, {"run:1"}, {"--plan"}})
    expect_refused(check(words), 3, "--yardstick none");
  expect_refused(check({"--yardstick", "nobody"}), 2, "'nobody' is no arm");
  EXPECT_EQ(server->seen().size(), asked);
  const ProgramResult as_it_is = check({"run:1", "--yardstick", "none"});
  EXPECT_EQ(as_it_is.exit_code, 0) << as_it_is.err;
  EXPECT_THAT(as_it_is.err, HasSubstr("moves with the machine"));
  EXPECT_EQ(json::parse(as_it_is.out).at("warnings").size(), 1u);
  expect_refused(check({"--endpoint", "nobody=http://127.0.0.1:1", "--yardstick", "none"}), 2,
                 "no server of that name");
  expect_refused(check({"--endpoint", "server=http://127.0.0.1:1,api=vllm", "--yardstick", "none"}),
                 3, "api is 'vllm'");
  expect_refused(check({"run:1", "--endpoint", "server=http://127.0.0.1:1"}), 2, "--endpoint");
  expect_refused(check({"--self-test", "miscount", "--yardstick", "ar"}), 2, "--yardstick");
}

}  // namespace
}  // namespace evalrun::tests
