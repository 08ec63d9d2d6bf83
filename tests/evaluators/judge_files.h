// Judge prompts of the official form in our own words, and a server on the loopback interface that
// answers as a test tells it.
#pragma once
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/loopback.h"

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
  // Called per request, from several threads, with its number (from 0) and its text, headers
  // included. An answer of "" is none: the connection stays open until the server goes.
  using Answer = std::function<std::string(int n, const std::string& request)>;
  explicit JudgeServer(Answer answer)
      : answer_(std::move(answer)), acceptor_([this] { accept_all(); }) {}
  ~JudgeServer() {
    end_ = true;
    acceptor_.join();
    for (std::thread& t : connections_) t.join();
  }
  std::string endpoint() const { return fmt::format("http://127.0.0.1:{}/v1", listener_.port()); }
  int requests() const { return n_; }
  std::string first_request() const {
    const std::scoped_lock lock(mutex_);
    return first_;
  }

 private:
  static bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 20) == 1;
  }
  void accept_all() {
    while (!end_) {
      if (!readable(listener_.fd())) continue;
      const int connection = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
      if (connection >= 0) connections_.emplace_back([this, connection] { serve(connection); });
    }
  }
  void serve(int connection) {
    std::string request;
    char buffer[4096];
    while (!end_ && !complete(request)) {
      if (!readable(connection)) continue;
      const ssize_t n = ::read(connection, buffer, sizeof buffer);
      if (n <= 0) break;
      request.append(buffer, static_cast<size_t>(n));
    }
    const int number = n_++;
    if (number == 0) {
      const std::scoped_lock lock(mutex_);
      first_ = request;
    }
    const std::string answer = answer_(number, request);
    while (answer.empty() && !end_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    send_all(connection, answer);
    ::close(connection);
  }
  static bool complete(const std::string& request) {
    const size_t head = request.find("\r\n\r\n"), length = request.find("Content-Length: ");
    return head != std::string::npos && length != std::string::npos &&
           request.size() >= head + 4 + std::stoul(request.substr(length + 16));
  }

  Answer answer_;
  LoopbackListener listener_{64};
  std::atomic<bool> end_ = false;
  std::atomic<int> n_ = 0;
  mutable std::mutex mutex_;
  std::string first_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;  // last: it uses everything above
};

}  // namespace evalrun::tests
