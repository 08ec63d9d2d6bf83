#include "runners/score/score_pool.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "engine/base/error.h"

namespace evalrun::runners {

namespace {

constexpr auto kLookAround = std::chrono::milliseconds(100);  // for a stop request

// What workers and the calling thread share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0, done = 0, running = 0;
  bool stop = false;
  std::exception_ptr failure;
};

class Workers {
 public:
  Workers(std::span<const ScoreJob> jobs, const evaluators::ScoringContext& context,
          std::vector<std::optional<results::ScoreRecord>>& scores, Shared& shared, size_t n)
      : shared_(shared) {
    shared_.running = n;
    for (size_t i = 0; i < n; ++i)
      threads_.emplace_back([this, jobs, &context, &scores] { work(jobs, context, scores); });
  }
  // Also when a callback throws: no thread outlives what it works on.
  ~Workers() {
    {
      const std::lock_guard lock(shared_.mutex);
      shared_.stop = true;
    }
    threads_.clear();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

 private:
  void work(std::span<const ScoreJob> jobs, const evaluators::ScoringContext& context,
            std::vector<std::optional<results::ScoreRecord>>& scores) {
    std::unique_lock lock(shared_.mutex);
    while (!shared_.stop && shared_.next < jobs.size()) {
      const size_t index = shared_.next++;
      lock.unlock();
      std::optional<results::ScoreRecord> score;
      std::exception_ptr failure;
      try {
        const ScoreJob& job = jobs[index];
        score = job.evaluator->score(*job.prompt, *job.texts, context);
      } catch (...) {  // an exception must not leave a thread; the caller throws it again
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        if (!shared_.failure) shared_.failure = failure;
        shared_.stop = true;
      } else {
        scores[index] = std::move(score);
        ++shared_.done;
      }
      shared_.changed.notify_one();
    }
    --shared_.running;
    shared_.changed.notify_one();
  }

  Shared& shared_;
  std::vector<std::jthread> threads_;  // joins, also when one of several cannot be started
};

}  // namespace

std::vector<std::optional<results::ScoreRecord>> score_all(
    std::span<const ScoreJob> jobs, const evaluators::ScoringContext& context, base::Clock& clock,
    const ScorePoolOptions& options) {
  EVALRUN_CHECK(options.workers >= 1, "{} workers", options.workers);
  std::vector<std::optional<results::ScoreRecord>> scores(jobs.size());
  if (jobs.empty()) return scores;
  Shared shared;
  const int64_t start_ns = clock.now_ns();
  const size_t n_workers = std::min(static_cast<size_t>(options.workers), jobs.size());
  const Workers workers(jobs, context, scores, shared, n_workers);

  size_t delivered = 0, reported = 0;
  std::unique_lock lock(shared.mutex);
  while (true) {
    shared.changed.wait_for(lock, kLookAround);
    const size_t done = shared.done;
    const bool finished = shared.running == 0;
    // What is delivered is complete and touched by no worker any more.
    size_t ready = delivered;
    while (ready < scores.size() && scores[ready].has_value()) ++ready;
    lock.unlock();
    if (options.on_score)
      for (size_t i = delivered; i < ready; ++i) options.on_score(i, *scores[i]);
    delivered = ready;
    if (options.on_progress && done > reported) {
      ScoreProgress progress{done, jobs.size(),
                             static_cast<double>(clock.now_ns() - start_ns) * 1e-9, 0};
      progress.left_s =
          progress.elapsed_s / static_cast<double>(done) * static_cast<double>(jobs.size() - done);
      options.on_progress(progress);
    }
    reported = done;
    const bool stop = options.stop_requested && options.stop_requested();
    lock.lock();
    shared.stop |= stop;
    if (finished) break;
  }
  if (shared.failure) std::rethrow_exception(shared.failure);
  return scores;
}

}  // namespace evalrun::runners
