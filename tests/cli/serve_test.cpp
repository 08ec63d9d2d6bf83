// evalrun serve: from its start to Ctrl-C, and what keeps it from starting. What it answers:
// tests/serve.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/base/clock.h"
#include "engine/net/http_client.h"
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

using Serve = CommandTest;

// What the child printed, once it is a line; "" where it ended before.
std::string first_line(const TempFolder& folder, Child& child) {
  while (true) {
    const bool running = child.running();
    if (std::filesystem::exists(folder.file("stdout.txt"))) {
      const std::string text = folder.read("stdout.txt");
      if (const size_t end = text.find('\n'); end != std::string::npos) return text.substr(0, end);
    }
    if (!running) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_F(Serve, AnswersUntilItIsInterrupted) {
  Child child(folder_, evalrun_command({"serve", "-m", tiny_model(), "--port", "0", "--method",
                                        "pld:k=3", "-t", "1", "-v"}));
  const std::string line = first_line(folder_, child);
  const std::string beginning = "listening on http://127.0.0.1:";
  ASSERT_THAT(line, ::testing::StartsWith(beginning)) << folder_.read("stderr.txt");
  base::SteadyClock clock;
  net::HttpClient client(clock);
  net::HttpRequest request;
  request.url = line.substr(std::string("listening on ").size()) + "/v1/completions";
  request.body =
      R"({"model": "tiny-llama", "prompt": "the cat", "max_tokens": 5, "ignore_eos": true})";
  const net::HttpResponse response = client.send(request);
  ASSERT_EQ(response.status, 200) << response.body << response.problem;
  EXPECT_EQ(json::parse(response.body)["usage"]["completion_tokens"], 5);
  child.send(SIGINT);
  EXPECT_EQ(child.wait(), 0) << folder_.read("stderr.txt");
  EXPECT_THAT(folder_.read("stderr.txt"), HasSubstr("POST /v1/completions: 200"));
  EXPECT_EQ(folder_.read("stdout.txt"), line + "\n");
}

TEST_F(Serve, WhatCannotBeServedIsNamed) {
  const std::string model = tiny_model();
  expect_refused(run({"serve", "-m", "nowhere.gguf"}), 7, "nowhere.gguf");
  expect_refused(run({"serve", "-m", model, "--host", "0.0.0.0"}), 2, "--key-env");
  expect_refused(run({"serve", "-m", model, "--key-env", "NO_SUCH_KEY"}), 2, "NO_SUCH_KEY");
  expect_refused(run({"serve", "-m", model, "--context", "100000"}), 2, "--context");
  expect_refused(run({"serve", "-m", model, "--method", "auto"}), 2, "--method");
  expect_refused(run({"serve", "-m", model, "--method", "oracle"}), 2, "oracle");
}

}  // namespace
}  // namespace evalrun::tests
