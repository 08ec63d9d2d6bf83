// What the server counts, for GET /metrics.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "results/records.h"

namespace evalrun::runners {

// Sums over the answers of a request, or of all of them.
struct AnswerCounts {
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t steps = 0, emitted = 0;  // tau = emitted / steps: each answer's first token is no step's
  int64_t drafted = 0, accepted = 0;      // draft tokens tested, and kept
  int64_t prefill_ns = 0, decode_ns = 0;  // first token read; steps and what a method does before
  void add(const results::TurnRecord& turn);  // but for the prompt
  void add(const AnswerCounts& other);
};

// For several threads.
class ServerMetrics {
 public:
  void count_request(int status);  // answered so; 499 = the client had gone
  void count_answers(const AnswerCounts& counts);
  // In Prometheus' text format. `waiting`: requests in the queue now.
  std::string text(int waiting) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, int64_t> requests_;
  AnswerCounts sums_;
};

}  // namespace evalrun::runners
