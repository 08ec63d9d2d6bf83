// Prompts of a shared run: rank 0 hands them out to all processes, itself among them.
//
// From a worker to rank 0: "plan KEY HOST" once, "next" for more, "done complete" or "done stopped"
// at the end.
// From rank 0: "welcome" or "refused WHY", "units 3 4 5" ("units" = nothing is left), "end".
//
// A unit is what one process measures of a plan: an index of plan_units() (runners/plan/shards.h).
#pragma once
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runners/cluster/dispenser.h"
#include "runners/cluster/messages.h"
#include "runners/measure/prompt_source.h"

namespace evalrun::runners {

// A source that can be asked beforehand whether it has anything: sessions and warm-up are dear.
class SharedSource : public PromptSource {
 public:
  explicit SharedSource(std::vector<std::vector<int>> units) : units_(std::move(units)) {}
  bool has_any();
  std::vector<int> next() final;

 protected:
  virtual std::vector<int> next_units() = 0;

 private:
  std::vector<std::vector<int>> units_;  // prompts of each
  std::vector<int> kept_;
};

class Coordinator final : public SharedSource {
 public:
  // Answers the others in a thread from now on. `key`: of the plan that all must have.
  Coordinator(Messages& messages, std::vector<std::vector<int>> units, std::string key,
              Dispenser dispenser);
  ~Coordinator() override;

  // Until each of the others has said which plan it has. Throws kEnvironment where one has ended
  // before, as most do that cannot begin: then nobody begins.
  void wait_for_plans();

  struct Ends {
    std::vector<int> gone;     // ended without a word; what they had was given to others
    std::vector<int> stopped;  // were told to end, or ran out of time
  };
  // Until every other process is done or gone. They wait for let_go(). Throws what the thread has
  // met.
  Ends wait_for_all();
  void let_go();
  int left();
  int stolen();

 protected:
  std::vector<int> next_units() override;

 private:
  void answer_all();
  void answer(const Message& message);

  Messages& messages_;
  std::string key_;
  std::mutex mutex_;  // dispenser_
  Dispenser dispenser_;
  std::vector<std::vector<int>> in_hand_;  // by rank
  // Of the thread until it is joined.
  std::vector<bool> ended_;
  Ends ends_;
  std::exception_ptr error_;
  std::vector<bool> heard_;
  std::atomic<int> n_heard_ = 1;  // rank 0 itself
  std::atomic<int> lost_ = 0;     // a rank that has ended before
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class Worker final : public SharedSource {
 public:
  // Throws usage_error where rank 0 has another plan, kEnvironment where it is gone.
  Worker(Messages& messages, std::vector<std::vector<int>> units, const std::string& key);
  // Nothing more will be asked for. Returns when all processes are done.
  void done(bool complete);

 protected:
  std::vector<int> next_units() override;

 private:
  std::string answer_of_first();
  Messages& messages_;
};

}  // namespace evalrun::runners
