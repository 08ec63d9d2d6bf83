#include "evaluators/judge/judge_client.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "datasets/json_lines.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/net/http_client.h"

namespace evalrun::evaluators {

namespace {

constexpr size_t kLongestReply = 4 << 20;  // bytes of a body; a judge's reply has a few thousand

class HttpJudge final : public JudgeClient {
 public:
  explicit HttpJudge(HttpJudgeOptions options) : o_(std::move(options)) {
    while (o_.endpoint.ends_with('/')) o_.endpoint.pop_back();
  }

  JudgeReply ask(const std::string&, const JudgeRequest& request) override {
    base::SteadyClock clock;
    net::HttpClient client(clock, o_.stop);  // a client serves one thread
    const net::HttpRequest http = http_request(request);
    JudgeReply reply;
    double wait = o_.first_wait_s;
    while (true) {
      const net::HttpResponse response = client.send(http);
      ++reply.attempts;
      if (response.ok()) {
        reply.text = net::without_key(parse_chat_completion(response.body, &reply.problem), o_.key);
        reply.answered = reply.problem.empty();
        if (reply.answered) return reply;
      } else {
        reply.problem = response.problem;
        const long s = response.failure == net::HttpFailure::kNone ? response.status : 0;
        reply.hopeless = s == 401 || s == 403 || s == 404 || s == 405;
        reply.refused = s >= 400 && s < 500 && s != 408 && s != 429 && !reply.hopeless;
      }
      if (stopped()) reply.problem = "interrupted";
      if (reply.hopeless || reply.refused || stopped() || reply.attempts > o_.retries) return reply;
      sleep(std::min(std::max(wait, response.retry_after_s), o_.longest_wait_s));
      wait *= 2;
    }
  }

 private:
  bool stopped() const { return o_.stop && o_.stop(); }

  void sleep(double seconds) const {
    using std::chrono::steady_clock;
    const auto end = steady_clock::now() + std::chrono::duration<double>(seconds);
    while (steady_clock::now() < end && !stopped())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  net::HttpRequest http_request(const JudgeRequest& request) const {
    const nlohmann::json body = {{"model", o_.model},
                                 {"temperature", 0},
                                 {"max_tokens", o_.max_tokens},
                                 {"messages",
                                  {{{"role", "system"}, {"content", request.system}},
                                   {{"role", "user"}, {"content", request.user}}}}};
    net::HttpRequest http;
    http.url = o_.endpoint + "/chat/completions";
    http.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    http.key = o_.key;
    http.connect_s = std::min(20.0, o_.timeout_s);
    http.total_s = http.stall_s = o_.timeout_s;
    http.longest_body = kLongestReply;
    return http;
  }

  HttpJudgeOptions o_;
};

class RecordedJudge final : public JudgeClient {
 public:
  explicit RecordedJudge(const std::string& path) {
    const std::string text = datasets::maybe_gunzip(base::read_file(path), path);
    datasets::for_each_json_record(
        text, path, [&](const datasets::JsonLine&, base::ObjectReader& reader) {
          const auto id = reader.required<std::string>("id");
          if (!replies_.emplace(id, reader.required<std::string>("reply")).second)
            reader.fail("id", fmt::format("'{}' was used before", id));
        });
  }
  JudgeReply ask(const std::string& id, const JudgeRequest&) override {
    JudgeReply reply;
    const auto it = replies_.find(id);
    reply.answered = it != replies_.end();
    if (reply.answered)
      reply.text = it->second;
    else
      reply.problem = "no recorded reply";
    return reply;
  }

 private:
  std::map<std::string, std::string> replies_;
};

}  // namespace

std::string parse_chat_completion(std::string_view body, std::string* problem) {
  problem->clear();
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto member = [](const nlohmann::json& object, const char* name) -> const nlohmann::json* {
    if (!object.is_object()) return nullptr;
    const auto it = object.find(name);
    return it == object.end() ? nullptr : &*it;
  };
  const nlohmann::json* choices = member(json, "choices");
  if (choices != nullptr && choices->is_array() && !choices->empty()) {
    const nlohmann::json* message = member(choices->front(), "message");
    const nlohmann::json* content = message == nullptr ? nullptr : member(*message, "content");
    if (content != nullptr && content->is_string()) return content->get<std::string>();
  }
  *problem = json.is_discarded() ? "the server's answer is not JSON"
                                 : "the server's answer has no choices[0].message.content";
  return "";
}

std::string judge_key_from_environment() {
  for (const char* name : {"EVALRUN_JUDGE_KEY", "OPENAI_API_KEY"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return "";
}

std::unique_ptr<JudgeClient> make_http_judge(HttpJudgeOptions options) {
  if (options.endpoint.empty() || options.model.empty())
    throw base::usage_error(
        "no judge is named",
        "give --endpoint URL and --judge-model NAME, or recorded replies with --replies FILE");
  net::check_url(options.endpoint, options.key, "endpoint", "EVALRUN_JUDGE_KEY and OPENAI_API_KEY");
  return std::make_unique<HttpJudge>(std::move(options));
}

std::unique_ptr<JudgeClient> make_recorded_judge(const std::string& path) {
  return std::make_unique<RecordedJudge>(path);
}

}  // namespace evalrun::evaluators
