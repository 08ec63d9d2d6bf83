#include "runners/cluster/prompt_sources.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

constexpr std::string_view kPlan = "plan ", kNext = "next", kComplete = "done complete",
                           kStopped = "done stopped", kWelcome = "welcome", kRefused = "refused ",
                           kUnits = "units", kEnd = "end";

// Long enough to leave the processors alone, and short beside a prompt.
constexpr std::chrono::milliseconds kNap(2);

std::string host_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

}  // namespace

bool SharedSource::has_any() {
  // After "nothing" it asks again: what a dead process had may have been given back meanwhile.
  if (kept_.empty()) kept_ = next_units();
  return !kept_.empty();
}

std::vector<int> SharedSource::next() {
  has_any();
  std::vector<int> prompts;
  for (const int unit : kept_) {
    const std::vector<int>& of = units_[static_cast<size_t>(unit)];
    prompts.insert(prompts.end(), of.begin(), of.end());
  }
  kept_.clear();
  return prompts;
}

Coordinator::Coordinator(Messages& messages, std::vector<std::vector<int>> units, std::string key,
                         Dispenser dispenser)
    : SharedSource(std::move(units)),
      messages_(messages),
      key_(std::move(key)),
      dispenser_(std::move(dispenser)),
      in_hand_(static_cast<size_t>(messages.size())),
      ended_(static_cast<size_t>(messages.size()), false),
      heard_(static_cast<size_t>(messages.size()), false) {
  ended_[0] = true;
  thread_ = std::thread([this] {
    try {
      answer_all();
    } catch (...) {
      error_ = std::current_exception();
      stop_ = true;
    }
  });
}

// After an error of this process the others are not waited for: they see that it is gone.
Coordinator::~Coordinator() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Coordinator::answer_all() {
  while (!stop_ && std::find(ended_.begin(), ended_.end(), false) != ended_.end())
    if (const std::optional<Message> message = messages_.poll())
      answer(*message);
    else
      std::this_thread::sleep_for(kNap);
}

void Coordinator::answer(const Message& message) {
  const auto from = static_cast<size_t>(message.from);
  if (message.gone) {
    if (!ended_[from]) ends_.gone.push_back(message.from);
    ended_[from] = true;
    if (!heard_[from]) lost_ = message.from;
    const std::lock_guard lock(mutex_);
    dispenser_.give_back(in_hand_[from]);
    in_hand_[from].clear();
  } else if (message.text.starts_with(kPlan)) {
    const std::vector<std::string> words = base::split(message.text, ' ');
    const bool same = words.size() == 3 && words[1] == key_;
    if (same && !heard_[from]) ++n_heard_;
    heard_[from] = heard_[from] || same;
    messages_.send(message.from,
                   same ? std::string(kWelcome)
                        : fmt::format("{}{} has another plan than {}", kRefused,
                                      words.size() == 3 ? words[2] : "it", host_name()));
  } else if (message.text == kNext) {
    std::string text(kUnits);
    {
      const std::lock_guard lock(mutex_);
      in_hand_[from] = dispenser_.take(message.from);
      for (const int unit : in_hand_[from]) text += fmt::format(" {}", unit);
    }
    messages_.send(message.from, text);
  } else if (message.text == kComplete || message.text == kStopped) {
    if (message.text == kStopped) ends_.stopped.push_back(message.from);
    ended_[from] = true;
    in_hand_[from].clear();
  } else {
    throw base::InternalError(
        fmt::format("rank {} says '{}'", message.from, message.text.substr(0, 80)));
  }
}

void Coordinator::wait_for_plans() {
  while (n_heard_ < messages_.size() && lost_ == 0 && !stop_) std::this_thread::sleep_for(kNap);
  if (stop_) wait_for_all();  // throws
  if (lost_ != 0)
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("process {} of {} ended before it began to measure",
                                  lost_.load() + 1, messages_.size()),
                      "its message says why");
}

Coordinator::Ends Coordinator::wait_for_all() {
  thread_.join();
  if (error_) std::rethrow_exception(error_);
  return ends_;
}

void Coordinator::let_go() {
  for (int rank = 1; rank < messages_.size(); ++rank)
    if (std::find(ends_.gone.begin(), ends_.gone.end(), rank) == ends_.gone.end())
      messages_.send(rank, std::string(kEnd));
}

int Coordinator::left() {
  const std::lock_guard lock(mutex_);
  return dispenser_.left();
}

int Coordinator::stolen() {
  const std::lock_guard lock(mutex_);
  return dispenser_.stolen();
}

std::vector<int> Coordinator::next_units() {
  const std::lock_guard lock(mutex_);
  return dispenser_.take(0);
}

Worker::Worker(Messages& messages, std::vector<std::vector<int>> units, const std::string& key)
    : SharedSource(std::move(units)), messages_(messages) {
  messages_.send(0, fmt::format("{}{} {}", kPlan, key, host_name()));
  const std::string answer = answer_of_first();
  if (answer != kWelcome)
    throw base::usage_error(
        answer.starts_with(kRefused) ? answer.substr(kRefused.size()) : answer,
        "every process needs the same build, model, data sets and options; data sets and models "
        "are looked for where EVALRUN_HOME and EVALRUN_DATA say on each node");
}

std::string Worker::answer_of_first() {
  const Message message = wait_for_message(messages_);
  if (message.gone)
    throw base::Error(base::ExitCode::kEnvironment, "the first process of this run is gone",
                      "what is measured is stored; the same command goes on");
  return message.text;
}

std::vector<int> Worker::next_units() {
  messages_.send(0, std::string(kNext));
  const std::string answer = answer_of_first();
  EVALRUN_CHECK(answer.starts_with(kUnits), "rank 0 says '{}'", answer.substr(0, 80));
  std::vector<int> units;
  for (const std::string& word : base::split(answer, ' '))
    if (word != kUnits) units.push_back(std::stoi(word));
  return units;
}

void Worker::done(bool complete) {
  messages_.send(0, std::string(complete ? kComplete : kStopped));
  while (answer_of_first() != kEnd) {
  }
}

}  // namespace evalrun::runners
