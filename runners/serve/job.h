// One request on its way through the engine: read by a connection's thread, answered by the
// engine's.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "results/records.h"
#include "runners/serve/api_error.h"
#include "runners/serve/completion_request.h"
#include "runners/serve/metrics.h"
#include "runners/serve/token_scores.h"

namespace evalrun::runners {

// What comes of a request, in order: for each prompt the tokens of each step and an end; then the
// end of all.
struct StepTokens {
  int choice = 0;
  std::vector<int32_t> ids;
};
struct ChoiceEnd {
  int choice = 0;
  results::StopReason stop = results::StopReason::kLimit;
  std::vector<TokenScore> scores = {};  // where log-probabilities are asked: with echo from the
                                        // prompt's second token on, else of the answer
};
struct JobEnd {
  std::optional<ApiError> error = {};
  AnswerCounts counts = {};
  uint64_t seed = 0;  // the one given, or the one drawn
};
using JobEvent = std::variant<StepTokens, ChoiceEnd, JobEnd>;

class Job {
 public:
  explicit Job(CompletionRequest request) : request_(std::move(request)) {}
  const CompletionRequest& request() const { return request_; }

  // The client's side. Nothing within `wait`: nullopt. After JobEnd nothing comes.
  std::optional<JobEvent> next(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    if (!there_is_more_.wait_for(lock, wait, [&] { return !events_.empty(); })) return std::nullopt;
    JobEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void abandon() { abandoned_ = true; }  // the engine stops at the next step

  // The engine's side.
  bool abandoned() const { return abandoned_; }
  void push(JobEvent event) {
    {
      const std::lock_guard lock(mutex_);
      // A client that does not read costs bounded memory.
      if (events_.size() >= kMostEvents) abandoned_ = true;
      events_.push_back(std::move(event));
    }
    there_is_more_.notify_one();
  }

 private:
  static constexpr size_t kMostEvents = 65'536;
  const CompletionRequest request_;
  std::atomic<bool> abandoned_ = false;
  std::mutex mutex_;
  std::condition_variable there_is_more_;
  std::deque<JobEvent> events_;
};

}  // namespace evalrun::runners
