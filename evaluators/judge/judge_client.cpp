#include "evaluators/judge/judge_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "datasets/json_lines.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::evaluators {

namespace {

constexpr size_t kLongestReply = 4 << 20;  // bytes of a body; a judge's reply has a few thousand

bool is_local(std::string_view endpoint) {
  for (const char* host : {"http://127.0.0.1", "http://localhost", "http://[::1]"})
    if (endpoint.starts_with(host)) {
      const std::string_view rest = endpoint.substr(std::string_view(host).size());
      // "http://localhost:x@elsewhere" is a user and a password.
      if (rest.substr(0, rest.find('/')).find('@') != std::string_view::npos) return false;
      if (rest.empty() || rest.front() == ':' || rest.front() == '/') return true;
    }
  return false;
}

struct Exchange {
  long status = 0;           // 0 = no answer
  std::string body, reason;  // reason: why there is no answer
  double retry_after_s = 0;
  bool too_long = false;
};

// libcurl calls these through C: no exception may leave them.
size_t on_body(char* data, size_t size, size_t n, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  if (exchange.body.size() + size * n > kLongestReply) {
    exchange.too_long = true;
    return 0;
  }
  try {
    exchange.body.append(data, size * n);
  } catch (...) {
    return 0;
  }
  return size * n;
}

size_t on_header(char* data, size_t size, size_t n, void* user) {
  const std::string_view line(data, size * n);
  constexpr std::string_view kName = "retry-after:";
  const bool same = line.size() > kName.size() &&
                    std::equal(kName.begin(), kName.end(), line.begin(), [](char a, char b) {
                      return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
                    });
  if (same) {
    char digits[16] = "";
    size_t n_digits = 0;
    for (const char c : line.substr(kName.size()))
      if (c >= '0' && c <= '9' && n_digits + 1 < sizeof digits) digits[n_digits++] = c;
    static_cast<Exchange*>(user)->retry_after_s = std::atof(digits);
  }
  return size * n;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& stop = *static_cast<const std::function<bool()>*>(user);
  try {
    return stop && stop() ? 1 : 0;
  } catch (...) {
    return 1;
  }
}

class HttpJudge final : public JudgeClient {
 public:
  explicit HttpJudge(HttpJudgeOptions options) : o_(std::move(options)) {
    while (o_.endpoint.ends_with('/')) o_.endpoint.pop_back();
    static const CURLcode kGlobal = curl_global_init(CURL_GLOBAL_DEFAULT);
    EVALRUN_CHECK(kGlobal == CURLE_OK);
  }

  JudgeReply ask(const std::string&, const JudgeRequest& request) override {
    const std::string body = request_body(request);
    JudgeReply reply;
    double wait = o_.first_wait_s;
    while (true) {
      const Exchange exchange = send(body);
      ++reply.attempts;
      if (exchange.status == 200) {
        reply.text = without_key(parse_chat_completion(exchange.body, &reply.problem));
        reply.answered = reply.problem.empty();
        if (reply.answered) return reply;
      } else {
        reply.problem = describe(exchange);
        const long s = exchange.status;
        reply.hopeless = s == 401 || s == 403 || s == 404 || s == 405;
        reply.refused = s >= 400 && s < 500 && s != 408 && s != 429 && !reply.hopeless;
      }
      if (stopped()) reply.problem = "interrupted";
      if (reply.hopeless || reply.refused || stopped() || reply.attempts > o_.retries) return reply;
      sleep(std::min(std::max(wait, exchange.retry_after_s), o_.longest_wait_s));
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

  std::string request_body(const JudgeRequest& request) const {
    const nlohmann::json body = {{"model", o_.model},
                                 {"temperature", 0},
                                 {"max_tokens", o_.max_tokens},
                                 {"messages",
                                  {{{"role", "system"}, {"content", request.system}},
                                   {{"role", "user"}, {"content", request.user}}}}};
    return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  Exchange send(const std::string& body) const {
    Exchange exchange;
    const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), &curl_easy_cleanup);
    EVALRUN_CHECK(handle != nullptr);
    curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
    if (!o_.key.empty())
      list = curl_slist_append(list, ("Authorization: Bearer " + o_.key).c_str());
    const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, &curl_slist_free_all);
    char reason[CURL_ERROR_SIZE] = "";
    CURL* curl = handle.get();
    // Not to a proxy: the key would leave this machine in clear.
    if (is_local(o_.endpoint)) curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_URL, (o_.endpoint + "/chat/completions").c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(std::ceil(std::min(20.0, o_.timeout_s) * 1000)));
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(std::ceil(o_.timeout_s * 1000)));
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "evalrun");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &o_.stop);
    const CURLcode rc = curl_easy_perform(curl);
    if (rc == CURLE_OK)
      curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &exchange.status);
    else
      exchange.reason = exchange.too_long
                            ? fmt::format("a reply of more than {} bytes", kLongestReply)
                        : reason[0] ? reason
                                    : curl_easy_strerror(rc);
    return exchange;
  }

  // A server may echo what it was sent.
  std::string without_key(std::string text) const {
    if (o_.key.empty()) return text;
    for (size_t at = 0; (at = text.find(o_.key, at)) != std::string::npos;)
      text.replace(at, o_.key.size(), "[key]");
    return text;
  }

  std::string describe(const Exchange& exchange) const {
    if (exchange.status == 0) return without_key(exchange.reason);
    constexpr size_t kShown = 200;
    // Before cutting, so that no part of a key is left at the edge.
    std::string body = without_key(exchange.body).substr(0, kShown);
    std::replace_if(
        body.begin(), body.end(), [](char c) { return static_cast<unsigned char>(c) < 32; }, ' ');
    return fmt::format("HTTP {}{}{}", exchange.status, body.empty() ? "" : ": ", body);
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
  const bool https = options.endpoint.starts_with("https://");
  if (!https && !options.endpoint.starts_with("http://"))
    throw base::usage_error(fmt::format("endpoint '{}' is no http address", options.endpoint),
                            "for example https://api.openai.com/v1 or http://localhost:8000/v1");
  if (!https && !options.key.empty() && !is_local(options.endpoint))
    throw base::usage_error(
        fmt::format("the key would travel unencrypted to {}", options.endpoint),
        "use https, or unset EVALRUN_JUDGE_KEY and OPENAI_API_KEY if this server needs no key");
  if (options.key.find_first_of("\r\n") != std::string::npos)
    throw base::usage_error("the judge's key holds a line break", "set it again without one");
  return std::make_unique<HttpJudge>(std::move(options));
}

std::unique_ptr<JudgeClient> make_recorded_judge(const std::string& path) {
  return std::make_unique<RecordedJudge>(path);
}

}  // namespace evalrun::evaluators
