#include "runners/load/load_block.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace evalrun::runners {
namespace {

// A wait looks so often whether the load was stopped.
constexpr int64_t kLoadNapNs = 20'000'000;

int64_t processor_ns() {
  rusage use = {};
  ::getrusage(RUSAGE_SELF, &use);
  const auto ns = [](const timeval& t) {
    return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + static_cast<int64_t>(t.tv_usec) * 1000;
  };
  return ns(use.ru_utime) + ns(use.ru_stime);
}

// After these the server may be gone; it is asked whether it is.
bool may_be_gone(EndpointFault fault) {
  return fault == EndpointFault::kDown || fault == EndpointFault::kLoading ||
         fault == EndpointFault::kBroken;
}

class LoadClients {
 public:
  LoadClients(const LoadBlockRequest& request, const LoadTools& tools,
              const std::function<void(const results::LoadRequest&)>& done)
      : request_(request), tools_(tools), done_(done) {}

  LoadBlockResult run() {
    const size_t n = std::min(static_cast<size_t>(request_.level.clients), request_.prompts.size());
    for (size_t c = 0; c < n; ++c) {
      endpoints_.push_back(tools_.make(request_.server));
      look_for(*endpoints_.back());  // also connects, which is no part of an answer
      if (halted_) return finish(0);
    }
    std::latch ready(static_cast<std::ptrdiff_t>(n)), go(1);
    std::vector<std::jthread> threads;
    try {
      for (size_t c = 0; c < n; ++c)
        threads.emplace_back([this, c, &ready, &go] {
          ready.count_down();
          go.wait();
          serve(*endpoints_[c]);
        });
    } catch (...) {  // no more threads: those that wait must end before the latches do
      halted_ = true;
      go.count_down();
      throw;
    }
    ready.wait();
    const int64_t cpu = processor_ns();
    start_ns_ = tools_.clock.now_ns();
    go.count_down();
    for (std::jthread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    const int64_t used = processor_ns() - cpu;
    endpoints_.front()->settle();
    return finish(used);
  }

 private:
  LoadBlockResult finish(int64_t cpu_ns) {
    result_.block.place = request_.place;
    result_.block.cpu_ns = cpu_ns;
    for (const results::LoadRequest& r : result_.block.requests)
      result_.block.wall_ns = std::max(result_.block.wall_ns, r.end_ns);
    result_.complete = !halted_ && result_.block.requests.size() == request_.prompts.size();
    return std::move(result_);
  }

  int64_t since_start() const { return tools_.clock.now_ns() - start_ns_; }
  bool halted() { return halted_ || (tools_.stop && tools_.stop()); }

  // What one client does, from the first request to the last.
  void serve(Endpoint& endpoint) {
    try {
      while (!halted()) {
        const size_t i = next_++;
        if (i >= request_.prompts.size()) return;
        ask(endpoint, i);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      halted_ = true;
    }
  }

  void ask(Endpoint& endpoint, size_t i) {
    bool late = false;
    int64_t scheduled = 0;
    if (request_.level.open()) {
      scheduled = request_.arrivals[i];
      late = since_start() > scheduled;  // no client was free when it arrived
      if (!wait_until(scheduled)) return;
    }
    const LoadPrompt& prompt = request_.prompts[i];
    const int64_t sent = since_start();
    const EndpointReply reply = endpoint.complete(prompt.request);
    const int64_t end = since_start();
    if (reply.fault == EndpointFault::kStopped) {
      halted_ = true;
      return;
    }
    results::LoadRequest record =
        load_request_of(reply, request_.level.open() ? scheduled : sent, sent, end);
    record.index = static_cast<int>(i);
    record.prompt = prompt.id;
    record.late = late;
    keep(std::move(record));
    if (may_be_gone(reply.fault)) look_for(endpoint);
  }

  void keep(results::LoadRequest record) {
    const std::lock_guard lock(mutex_);
    if (done_) done_(record);
    result_.block.requests.push_back(std::move(record));
  }

  void look_for(Endpoint& endpoint) {
    try {
      endpoint.check(0);
    } catch (const base::Error& e) {
      const std::lock_guard lock(mutex_);
      const bool stopped = e.code() == base::ExitCode::kInterrupted;
      if (!stopped && !result_.error) result_.error = e;
      halted_ = true;
    }
  }

  // False where the load was stopped meanwhile.
  bool wait_until(int64_t ns) {
    while (true) {
      const int64_t left = ns - since_start();
      if (left <= 0) return true;
      if (halted()) return false;
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, kLoadNapNs)));
    }
  }

  const LoadBlockRequest& request_;
  const LoadTools& tools_;
  const std::function<void(const results::LoadRequest&)>& done_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  int64_t start_ns_ = 0;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> halted_ = false;
  std::mutex mutex_;  // of what follows
  LoadBlockResult result_;
  std::exception_ptr failure_;
};

int64_t answer_tokens(const EndpointReply& reply) {
  if (reply.counts.new_tokens) return *reply.counts.new_tokens;
  if (!reply.ids.empty()) return static_cast<int64_t>(reply.ids.size());
  int64_t sum = 0;
  for (const EndpointArrival& a : reply.arrivals) sum += a.tokens;
  return sum;
}

}  // namespace

results::LoadRequest load_request_of(const EndpointReply& reply, int64_t scheduled_ns,
                                     int64_t sent_ns, int64_t end_ns) {
  results::LoadRequest r;
  r.scheduled_ns = scheduled_ns;
  r.sent_ns = sent_ns;
  r.end_ns = end_ns;
  r.tokens = answer_tokens(reply);
  r.attempts = reply.attempts;
  r.fault = to_string(reply.fault);
  if (reply.ok())
    r.fault = "none";
  else
    r.problem = reply.problem;
  // Arrivals count from the last attempt; a user has waited for those before as well.
  const int64_t before =
      reply.attempts > 1 ? std::max<int64_t>(0, end_ns - sent_ns - reply.total_ns) : 0;
  for (const EndpointArrival& a : reply.arrivals) {
    if (a.tokens == 0 && a.text.empty()) continue;  // nothing that a user would see
    r.arrivals.push_back({sent_ns + before + a.ns, a.tokens});
  }
  if (!r.arrivals.empty()) r.first_ns = r.arrivals.front().ns;
  r.prompt_tokens = reply.counts.prompt_tokens;
  r.cached_tokens = reply.counts.cached_tokens;
  r.drafted = reply.counts.drafted;
  r.accepted = reply.counts.accepted;
  return r;
}

LoadBlockResult run_load_block(const LoadBlockRequest& request, const LoadTools& tools,
                               const std::function<void(const results::LoadRequest&)>& done) {
  EVALRUN_CHECK(!request.level.open() || request.arrivals.size() == request.prompts.size(),
                "{} arrivals of {} prompts", request.arrivals.size(), request.prompts.size());
  return LoadClients(request, tools, done).run();
}

}  // namespace evalrun::runners
