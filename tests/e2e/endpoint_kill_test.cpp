// Crashes of runs with servers: evalrun is killed, or the server is.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "engine/base/rng.h"
#include "tests/e2e/kill_and_resume.h"
#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"
#include "tests/endpoints/llama_events.h"
#include "tests/endpoints/scripted_server.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// As llama-server answers: tokens, pieces and counts that follow from the prompt.
ScriptedReply answer_from_prompt(const SeenRequest& request) {
  if (request.path == "/v1/models") return json_reply(R"({"data": [{"id": "m.gguf"}]})");
  if (request.path != "/completion") return json_reply("{}");
  uint64_t hash = 1;
  for (const auto& id : nlohmann::json::parse(request.body).at("prompt"))
    hash = base::combine_seeds({hash, id.get<uint64_t>()});
  base::Rng rng(hash);
  std::vector<std::string> events;
  int total = 0;
  for (int piece = 0; piece < 6; ++piece) {
    std::string ids;
    for (uint64_t left = 1 + rng.below(3); left > 0; --left, ++total)
      ids += (ids.empty() ? "" : ",") + std::to_string(3 + rng.below(40));
    events.push_back(llama_piece("x", ids, total));
  }
  events.push_back(llama_last(total, "limit", R"(,"draft_n":9,"draft_n_accepted":4)"));
  return event_reply(events);
}

// Servers beside evalrun's own methods.
TEST(EndpointKill, EvalrunInTheMiddleOfARunLosesNothing) {
  ScriptedServer server(answer_from_prompt);
  std::vector<std::string> more;
  for (const char* name : {"plain", "spec"})
    more.insert(more.end(), {"--endpoint", fmt::format("{}={},api=llama", name, server.url())});
  constexpr int kPrompts = 60;
  kill_and_resume({.arguments = run_arguments(24, more),
                   .cells = kPrompts * 5,  // plain, its A/A arm, spec, AR, PLD
                   .kills = test_everything() ? 60 : 15,
                   .prompts = kPrompts});
}

// `evalrun serve` as a server of its own, which can be killed.
class ServeProcess {
 public:
  explicit ServeProcess(const std::string& port = "0")
      : child_(folder_, evalrun_command({"serve", "-m", tiny_model(), "--port", port, "-t", "1"})) {
    const std::string beginning = "listening on ";
    while (child_.running() && url_.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (!std::filesystem::exists(folder_.file("stdout.txt"))) continue;
      const std::string text = folder_.read("stdout.txt");
      if (const size_t end = text.find('\n'); end != std::string::npos)
        url_ = text.substr(beginning.size(), end - beginning.size());
    }
    EXPECT_THAT(url_, ::testing::StartsWith("http://")) << folder_.read("stderr.txt");
  }
  const std::string& url() const { return url_; }
  std::string port() const { return url_.substr(url_.rfind(':') + 1); }
  void kill() {
    child_.send(SIGKILL);
    child_.wait();
  }

 private:
  TempFolder folder_;
  Child child_;
  std::string url_;
};

class ServerKill : public ::testing::Test {
 protected:
  static constexpr int kPrompts = 150;
  static std::vector<std::string> arguments(const std::string& url) {
    return {"run",
            "-m",
            tiny_model(),
            "--db",
            "r.db",
            "--tasks",
            "jsonl:prompts.jsonl",
            "--endpoint",
            "ours=" + url + ",cache=declared-off",
            "--no-aa",
            "-n",
            "48",
            "-w",
            "0",
            "-t",
            "1"};
  }
  // Kills the server once some answers are stored, while others are asked for.
  void kill_in_mid_run(ServeProcess& server, Child& run) const {
    while (run.running() && count_stored(db()) < 8)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.kill();
    ASSERT_TRUE(run.running()) << folder_.read("stderr.txt");
  }
  std::string db() const { return folder_.file("r.db"); }
  // The same tokens as a run that nothing happened to.
  void expect_undisturbed(const StoredRun& stored) const {
    ServeProcess server;
    TempFolder folder;
    write_prompts(folder, kPrompts);
    const ProgramResult result = run_evalrun(folder, arguments(server.url()));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const StoredRun expected = read_stored(folder.file("r.db"));
    ASSERT_EQ(stored.size(), expected.size());
    for (const auto& [cell, generation] : expected) {
      EXPECT_EQ(stored.at(cell).tokens, generation.tokens) << cell.prompt;
      EXPECT_EQ(stored.at(cell).status, "ok");
    }
  }

  TempFolder folder_;
};

TEST_F(ServerKill, EndsTheRunByNameWhichGoesOnWhereTheServerIsAgain) {
  write_prompts(folder_, kPrompts);
  auto server = std::make_unique<ServeProcess>();
  {
    Child run(folder_, evalrun_command(arguments(server->url())));
    ASSERT_NO_FATAL_FAILURE(kill_in_mid_run(*server, run));
    EXPECT_EQ(run.wait(), 7);
  }
  EXPECT_THAT(folder_.read("stderr.txt"),
              AllOf(HasSubstr("endpoint ours"), HasSubstr(server->url()),
                    HasSubstr("of 150 generations are stored"),
                    HasSubstr("run the same command again when the server answers")));
  const StoredRun kept = read_stored(db());
  EXPECT_GE(kept.size(), 8u);
  EXPECT_LT(kept.size(), size_t{kPrompts});
  for (const auto& [cell, generation] : kept) EXPECT_EQ(generation.status, "ok") << cell.prompt;
  // It is back at another port: the same server.
  server = std::make_unique<ServeProcess>();
  const ProgramResult resumed = run_evalrun(folder_, arguments(server->url()));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const StoredRun whole = read_stored(db());
  for (const auto& [cell, generation] : kept) EXPECT_EQ(whole.at(cell), generation) << cell.prompt;
  EXPECT_EQ(query_value(db(), "SELECT count(*) FROM run"), "1");
  expect_undisturbed(whole);
}

// Back within the client's patience, nothing has happened but a request that was sent again.
TEST_F(ServerKill, AServerThatIsBackAtOnceIsAskedAgain) {
  write_prompts(folder_, kPrompts);
  ServeProcess server;
  Child run(folder_, evalrun_command(arguments(server.url())));
  ASSERT_NO_FATAL_FAILURE(kill_in_mid_run(server, run));
  const ServeProcess again(server.port());
  EXPECT_EQ(run.wait(), 0) << folder_.read("stderr.txt");
  EXPECT_EQ(query_value(db(), "SELECT max(attempts) > 1 FROM endpoint_turn"), "1");
  expect_undisturbed(read_stored(db()));
}

}  // namespace
}  // namespace evalrun::tests
