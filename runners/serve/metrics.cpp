#include "runners/serve/metrics.h"

#include <fmt/format.h>

namespace evalrun::runners {

void AnswerCounts::add(const results::TurnRecord& turn) {
  new_tokens += static_cast<int64_t>(turn.tokens.size());
  steps += static_cast<int64_t>(turn.steps.size());
  for (const results::StepRecord& step : turn.steps) {
    emitted += step.emitted;
    drafted += step.drafted;
    accepted += step.accepted;
  }
  prefill_ns += turn.prefill_ns;
  decode_ns += turn.draft_prefill_ns + turn.decode_ns;
}

void AnswerCounts::add(const AnswerCounts& other) {
  prompt_tokens += other.prompt_tokens;
  new_tokens += other.new_tokens;
  steps += other.steps;
  emitted += other.emitted;
  drafted += other.drafted;
  accepted += other.accepted;
  prefill_ns += other.prefill_ns;
  decode_ns += other.decode_ns;
}

void ServerMetrics::count_request(int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[status];
}

void ServerMetrics::count_answers(const AnswerCounts& counts) {
  const std::lock_guard lock(mutex_);
  sums_.add(counts);
}

std::string ServerMetrics::text(int waiting) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto head = [&](const char* name, const char* kind, const char* help) {
    text += fmt::format("# HELP evalrun_{0} {2}\n# TYPE evalrun_{0} {1}\n", name, kind, help);
  };
  const auto counter = [&](const char* name, const char* help, auto value) {
    head(name, "counter", help);
    text += fmt::format("evalrun_{} {}\n", name, value);
  };
  head("requests_total", "counter",
       "Requests by the status of their answer; 499: the client left.");
  for (const auto& [status, n] : requests_)
    text += fmt::format("evalrun_requests_total{{status=\"{}\"}} {}\n", status, n);
  counter("prompt_tokens_total", "Tokens of prompts.", sums_.prompt_tokens);
  counter("generated_tokens_total", "Tokens of answers, stop tokens included.", sums_.new_tokens);
  counter("steps_total", "Steps of the method.", sums_.steps);
  counter("step_tokens_total", "Tokens that steps emitted; over steps_total this is tau.",
          sums_.emitted);
  counter("drafted_tokens_total", "Draft tokens that were tested.", sums_.drafted);
  counter("accepted_tokens_total", "Draft tokens that were kept.", sums_.accepted);
  counter("prefill_seconds_total", "Time until the first tokens were read.",
          static_cast<double>(sums_.prefill_ns) * 1e-9);
  counter("decode_seconds_total", "Time of steps.", static_cast<double>(sums_.decode_ns) * 1e-9);
  head("waiting_requests", "gauge", "Requests in the queue.");
  text += fmt::format("evalrun_waiting_requests {}\n", waiting);
  return text;
}

}  // namespace evalrun::runners
