// Judge prompts of the official form in our own words, and a server on the loopback interface that
// answers as a test tells it.
#pragma once
#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "tests/endpoints/scripted_server.h"

namespace evalrun::tests {

inline std::string judge_prompts_file() {
  std::string text;
  const auto add = [&](const char* name, const char* prompt) {
    text +=
        fmt::format(R"({{"name":"{}","type":"x","system_prompt":"be a judge",)"
                    R"("prompt_template":"{}","description":"","category":"","output_format":""}})"
                    "\n",
                    name, prompt);
  };
  add("single-v1", "grade: {question} / {answer}");
  add("single-math-v1", "grade with {ref_answer_1}: {question} / {answer}");
  add("single-v1-multi-turn", "grade 2: {question_1} / {answer_1} / {question_2} / {answer_2}");
  add("single-math-v1-multi-turn",
      "grade 2 with {ref_answer_1}, {ref_answer_2}: {question_1} / {answer_1} / {question_2} / "
      "{answer_2}");
  add("pair-v2", "pair: {question} / {answer_a} / {answer_b}");
  add("pair-math-v1", "pair with {ref_answer_1}: {question} / {answer_a} / {answer_b}");
  add("pair-v2-multi-turn",
      "pair 2: {question_1} / {question_2} / {answer_a_1} / {answer_a_2} / {answer_b_1} / "
      "{answer_b_2}");
  add("pair-math-v1-multi-turn",
      "pair 2 with {ref_answer_1}, {ref_answer_2}: {question_1} / {question_2} / {answer_a_1} / "
      "{answer_a_2} / {answer_b_1} / {answer_b_2}");
  return text;
}

inline std::string judge_references_file() {
  return R"({"question_id":101,"model_id":"x","choices":[{"index":0,"turns":["r1","r2"]}]})"
         "\n";
}

inline std::string http_response(int status, const std::string& body,
                                 const std::string& more_headers = "") {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}", status,
                     body.size(), more_headers, body);
}

// Of a chat completion; `text` must need no escaping.
inline std::string completion(const std::string& text) {
  return http_response(200,
                       fmt::format(R"({{"choices":[{{"message":{{"content":"{}"}}}}]}})", text));
}

class JudgeServer {
 public:
  // Called per request with its number (from 0) and its text, headers included. An answer of "" is
  // none: the connection stays open until the server goes.
  using Answer = std::function<std::string(int n, const std::string& request)>;
  explicit JudgeServer(Answer answer)
      : answer_(std::move(answer)), server_([this](const SeenRequest& request) {
          ScriptedReply reply;
          reply.raw = answer_(n_++, request.text);
          reply.silent = reply.raw.empty();
          return reply;
        }) {}
  std::string endpoint() const { return server_.url() + "/v1"; }
  int requests() const { return n_; }
  std::string first_request() const { return server_.seen().front().text; }

 private:
  Answer answer_;
  std::atomic<int> n_ = 0;
  ScriptedServer server_;  // last: it uses everything above
};

}  // namespace evalrun::tests
