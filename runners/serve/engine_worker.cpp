#include "runners/serve/engine_worker.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/decode_loop.h"
#include "methods/stop_text.h"

namespace evalrun::runners {
namespace {

constexpr std::chrono::milliseconds kLookForStop(20);

// Why a request ends in the middle.
struct ClientGone {};
struct ServerStops {};

ApiError stopping() {
  return {.status = 503, .message = "the server is stopping", .code = "server_stopping"};
}

uint64_t random_number() {
  std::random_device device;
  return base::combine_seeds({device(), device()});
}

}  // namespace

EngineWorker::EngineWorker(EngineSetup setup, ServerMetrics& metrics)
    : setup_(std::move(setup)),
      metrics_(metrics),
      method_name_(setup_.method.canonical()),
      unseeded_(random_number()) {
  if (setup_.method.info->needs_answer)
    throw base::usage_error(
        fmt::format("method {} drafts from the answer that plain decoding gives, which a server "
                    "does not have",
                    setup_.method.info->name),
        "choose another method");
  methods::MethodBuildContext build;
  build.target = setup_.target;
  build.draft = setup_.draft;
  build.session = setup_.session;
  build.session.max_tokens = setup_.context + kRowsBeyondContext;
  if (!setup_.row_cost.empty()) build.row_cost = &setup_.row_cost;
  decoded_ = methods::decoded_model(setup_.method, build);
  session_ = engine::Session::create(decoded_, build.session);
  build.session = session_->options();  // defaults resolved
  method_ = setup_.method.info->build(setup_.method.params, build);
}

EngineWorker::Submitted EngineWorker::submit(std::shared_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Submitted::kClosed;
    // Clients that have gone hold no places.
    std::erase_if(queue_, [](const auto& waiting) { return waiting->abandoned(); });
    if (queue_.size() >= static_cast<size_t>(setup_.queue)) return Submitted::kFull;
    queue_.push_back(std::move(job));
  }
  there_is_more_.notify_one();
  return Submitted::kTaken;
}

int EngineWorker::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(queue_.size());
}

std::shared_ptr<Job> EngineWorker::take(const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  while (!stop()) {
    if (!queue_.empty()) {
      std::shared_ptr<Job> job = std::move(queue_.front());
      queue_.pop_front();
      return job;
    }
    there_is_more_.wait_for(lock, kLookForStop);
  }
  return nullptr;
}

void EngineWorker::close() {
  std::deque<std::shared_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    left.swap(queue_);
  }
  for (const auto& job : left) job->push(JobEnd{.error = stopping()});
}

void EngineWorker::run(const std::function<bool()>& stop) {
  struct Closing {
    EngineWorker& worker;
    ~Closing() { worker.close(); }
  };
  const Closing closing{*this};
  while (const std::shared_ptr<Job> job = take(stop)) serve(*job, stop);
}

void EngineWorker::serve(Job& job, const std::function<bool()>& stop) {
  const CompletionRequest& request = job.request();
  JobEnd end;
  end.seed = request.seed.value_or(0);
  // A draw that nobody asked to be repeatable; the answer says its seed. Below 2^53, which every
  // reader of JSON keeps.
  if (!request.seed && !request.sampling.greedy())
    end.seed = base::combine_seeds({unseeded_++}) >> 11;
  const auto check = [&] {
    if (job.abandoned()) throw ClientGone();
    if (stop()) throw ServerStops();
  };
  try {
    for (size_t i = 0; i < request.prompts.size(); ++i)
      answer(job, static_cast<int>(i), end.seed, end.counts, check);
  } catch (const ClientGone&) {
    return;  // nobody listens
  } catch (const ServerStops&) {
    end.error = stopping();
  } catch (const base::DeviceFault& e) {
    job.push(JobEnd{.error = ApiError{.status = 500, .message = e.message()}});
    throw;
  } catch (const base::Error& e) {
    end.error = ApiError{.status = 500, .message = e.message()};
  } catch (const std::exception& e) {
    end.error = ApiError{.status = 500, .message = e.what()};
  }
  if (!end.error) metrics_.count_answers(end.counts);
  job.push(std::move(end));
}

// Decodes one prompt, and computes log-probabilities by a second pass where they are asked for.
void EngineWorker::answer(Job& job, int choice, uint64_t seed, AnswerCounts& counts,
                          const std::function<void()>& check) {
  const CompletionRequest& request = job.request();
  const std::vector<int32_t>& prompt = request.prompts[static_cast<size_t>(choice)];
  const engine::Tokenizer& tokenizer = *setup_.target->tokenizer();
  check();
  counts.prompt_tokens += static_cast<int64_t>(prompt.size());
  ChoiceEnd end{.choice = choice};
  std::vector<int32_t> ids = prompt;
  if (request.max_new > 0) {
    session_->reset();
    std::optional<methods::StopText> stop_text;
    if (!request.stop.empty())
      stop_text.emplace(tokenizer, methods::StopTextRules{.strings = request.stop});
    methods::TurnRequest turn;
    turn.prompt = prompt;
    turn.max_new = request.max_new;
    if (!request.ignore_eos) turn.stop_ids = tokenizer.stop_ids();
    turn.stop_text = stop_text ? &*stop_text : nullptr;
    turn.sampling = request.sampling;
    turn.seed = base::combine_seeds({seed, static_cast<uint64_t>(choice)});
    turn.on_tokens = [&](std::span<const int32_t> tokens) {
      check();
      job.push(StepTokens{choice, {tokens.begin(), tokens.end()}});
    };
    const results::TurnRecord record = methods::decode_turn(*method_, *session_, turn, clock_);
    counts.add(record);
    end.stop = record.stop;
    ids.insert(ids.end(), record.tokens.begin(), record.tokens.end());
  }
  if (request.logprobs)
    end.scores = score_tokens(*session_, ids, request.echo ? size_t{1} : prompt.size(),
                              *request.logprobs, check);
  job.push(std::move(end));
}

}  // namespace evalrun::runners
