// Who answers a judge's prompts: an OpenAI-compatible server, or recorded replies.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "evaluators/judge/judge.h"

namespace evalrun::evaluators {

struct JudgeReply {
  bool answered = false;
  std::string text;     // the reply; "" when there is none
  std::string problem;  // why there is none, without secrets
  // The next question would fare no better: wrong key, unknown model, no such server.
  bool hopeless = false;
  // This question alone cannot be asked: too long, filtered. Asking again is of no use.
  bool refused = false;
  int attempts = 0;  // requests sent
};

class JudgeClient {
 public:
  virtual ~JudgeClient() = default;
  // `id` names the question (prompt and answers). May be called from several threads at once. Never
  // throws for what a server does.
  virtual JudgeReply ask(const std::string& id, const JudgeRequest& request) = 0;
};

struct HttpJudgeOptions {
  std::string endpoint;  // "https://api.openai.com/v1"; /chat/completions is appended
  std::string model;
  std::string key;  // "" = none is sent. In no message, file or log.
  int max_tokens = 2048;
  double timeout_s = 120;  // of one request
  int retries = 6;         // further attempts after 429, 5xx, timeouts and broken connections
  double first_wait_s = 1, longest_wait_s = 60;  // doubles from one attempt to the next
  std::function<bool()> stop;                    // true = give up at once; may be empty
};

// temperature 0. Redirects are not followed, so that the key goes to the named server alone. Throws
// usage_error: no endpoint or model, not http(s), or a key that would travel unencrypted to another
// machine.
std::unique_ptr<JudgeClient> make_http_judge(HttpJudgeOptions options);

// Replies from a JSON Lines file: {"id": "...", "reply": "..."}. Throws data_error.
std::unique_ptr<JudgeClient> make_recorded_judge(const std::string& path);

// EVALRUN_JUDGE_KEY, else OPENAI_API_KEY, else "".
std::string judge_key_from_environment();

// The reply in the body of a chat completion; "" and *problem when it holds none. For foreign
// bytes.
std::string parse_chat_completion(std::string_view body, std::string* problem);

}  // namespace evalrun::evaluators
