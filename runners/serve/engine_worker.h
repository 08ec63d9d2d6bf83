// The one session and method of a server: requests in the order in which they came, one at a time.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "engine/base/clock.h"
#include "engine/cost/row_cost.h"
#include "engine/model/model.h"
#include "engine/session.h"
#include "methods/registration.h"
#include "runners/serve/job.h"
#include "runners/serve/metrics.h"

namespace evalrun::runners {

struct EngineSetup {
  std::shared_ptr<const engine::Model> target, draft;  // draft: null = none
  methods::MethodSpec method;
  engine::SessionOptions session;      // max_tokens is set by `context`
  int context = 0;                     // tokens of a prompt and its answer
  int queue = 16;                      // requests that may wait
  engine::RowCostTable row_cost = {};  // empty = not known
};

// Room of a session after its context: rows in flight stand there, up to a whole tree of a step.
inline constexpr int kRowsBeyondContext = 256;

class EngineWorker {
 public:
  // Makes session and method; throws usage_error and data_error as they do. For a GPU: in the
  // thread that will run().
  EngineWorker(EngineSetup setup, ServerMetrics& metrics);

  const std::string& method() const { return method_name_; }  // with all parameters

  enum class Submitted { kTaken, kFull, kClosed };
  Submitted submit(std::shared_ptr<Job> job);  // from any thread
  int waiting() const;

  // Serves until `stop`, which is asked between steps and several times a second. Then, and where a
  // DeviceFault is thrown, all that is left is answered with 503.
  void run(const std::function<bool()>& stop);

 private:
  std::shared_ptr<Job> take(const std::function<bool()>& stop);  // null = stop
  void close();
  void serve(Job& job, const std::function<bool()>& stop);
  void answer(Job& job, int choice, uint64_t seed, AnswerCounts& counts,
              const std::function<void()>& check);

  const EngineSetup setup_;
  ServerMetrics& metrics_;
  std::string method_name_;
  std::shared_ptr<const engine::Model> decoded_;  // what the method decodes
  std::unique_ptr<engine::Session> session_;
  std::unique_ptr<methods::DecodingMethod> method_;
  base::SteadyClock clock_;
  uint64_t unseeded_ = 0;  // requests without a seed so far, from a random beginning

  mutable std::mutex mutex_;  // of the rest
  std::condition_variable there_is_more_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool closed_ = false;
};

}  // namespace evalrun::runners
