#include "runners/measure/warmup.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/device_time.h"
#include "engine/devices.h"

namespace evalrun::runners {
namespace {

constexpr int kWarmupTokens = 16;  // of one automatic warm-up generation, and of any in a batch
constexpr int kWholeAnswers = std::numeric_limits<int>::max();
constexpr size_t kWindow = 5;
constexpr double kTolerance = 0.01;

double median_of_window(std::vector<int64_t>::const_iterator begin) {
  std::vector<int64_t> window(begin, begin + kWindow);
  std::nth_element(window.begin(), window.begin() + kWindow / 2, window.end());
  return static_cast<double>(window[kWindow / 2]);
}

class WarmUp {
 public:
  WarmUp(const RunPlan& plan, const std::vector<const Visit*>& pending, GenerationDecoder& decoder,
         base::Clock& clock, const std::function<bool()>& stop);
  void fixed(RunningArm& arm);                     // suite.warmup generations
  void until_steady(RunningArm& arm, bool first);  // suite.warmup < 0; `first`: the baseline

 private:
  // One generation, or a batch of them, of `max_new` tokens at most; its step times go to `steady`
  // if given. `i`: how many came before.
  void generation(RunningArm& arm, size_t i, int max_new, SteadyState* steady);
  // Prompts differ in the graphs that they need (engine/cuda/runtime/graphs.h), on the CPU in
  // nothing.
  static bool graphs(const RunningArm& arm) {
    return engine::is_gpu(arm.session->options().device);
  }
  std::vector<const PlannedPrompt*> prompts(const RunningArm& arm, size_t i) const {
    std::vector<const PlannedPrompt*> chosen;
    const auto n = static_cast<size_t>(arm.batch());
    for (size_t k = 0; k < n; ++k)
      chosen.push_back(prompts_[((graphs(arm) ? i * n : size_t{0}) + k) % prompts_.size()]);
    return chosen;
  }
  bool stop_requested() const { return stop_ && stop_(); }

  const Suite& suite_;
  GenerationDecoder& decoder_;
  base::Clock& clock_;
  const std::function<bool()>& stop_;
  std::vector<const PlannedPrompt*> prompts_;  // in the order in which they will be measured
};

WarmUp::WarmUp(const RunPlan& plan, const std::vector<const Visit*>& pending,
               GenerationDecoder& decoder, base::Clock& clock, const std::function<bool()>& stop)
    : suite_(plan.suite), decoder_(decoder), clock_(clock), stop_(stop) {
  for (const Visit* v : pending) {
    const PlannedPrompt& prompt = plan.prompts[static_cast<size_t>(v->prompt)];
    if (prompts_.empty() || prompts_.back() != &prompt) prompts_.push_back(&prompt);
  }
}

void WarmUp::fixed(RunningArm& arm) {
  for (int i = 0; i < suite_.warmup && !stop_requested(); ++i) {
    // In turns, slow first steps fall on both builds.
    const bool brief = (decoder_.in_turns() || arm.batch() > 1) && !graphs(arm);
    generation(arm, static_cast<size_t>(i), brief ? kWarmupTokens : kWholeAnswers, nullptr);
  }
}

// The baseline brings the machine to its steady state; the others only touch their own code and
// memory once. On a GPU each goes on until it finds all its graphs: a method has more of them, and
// making them is no decoding.
void WarmUp::until_steady(RunningArm& arm, bool first) {
  SteadyState steady;
  const int64_t begin = clock_.now_ns();
  const auto out_of_time = [&] {
    return static_cast<double>(clock_.now_ns() - begin) * 1e-9 >= suite_.warmup_limit_s;
  };
  bool warm = false;
  for (size_t i = 0; !warm; ++i) {
    const int before = steady.steps();
    const int64_t misses = engine::device_time().graph_misses;
    generation(arm, i, graphs(arm) ? kWholeAnswers : kWarmupTokens, &steady);
    if (steady.steps() == before) break;  // failed, or one token only: it would never settle
    warm = (!first || steady.settled()) && misses == engine::device_time().graph_misses;
    if (out_of_time() || stop_requested()) break;
  }
}

void WarmUp::generation(RunningArm& arm, size_t i, int max_new, SteadyState* steady) {
  try {
    const std::vector<results::TurnRecord> turns =
        decoder_.warm_turns(prompts(arm, i), arm, max_new);
    if (steady == nullptr) return;
    // Of whole steps: the first answer of a batch has a share of them.
    const results::TurnRecord& turn = turns.front();
    for (size_t k = 0; k < turn.steps.size(); ++k) {
      const results::StepRecord& s = turn.steps[k];
      steady->add(turn.batch ? turn.batch->steps[k].ns
                             : s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns);
    }
  } catch (const base::DeviceFault& fault) {
    throw base::DeviceFault(fmt::format("warm-up of {}", arm.planned->record.label), fault);
  } catch (const std::exception&) {
    arm.build();
  }
}

}  // namespace

bool SteadyState::settled() const {
  if (times_.size() < 2 * kWindow) return false;
  const double last = median_of_window(times_.end() - kWindow);
  const double before = median_of_window(times_.end() - 2 * kWindow);
  return std::abs(last - before) <= kTolerance * before;
}

void warm_up(const RunPlan& plan, const std::vector<const Visit*>& pending,
             GenerationDecoder& decoder, base::Clock& clock, std::vector<RunningArm>& arms,
             ProgressSink& progress, const std::function<bool()>& stop) {
  WarmUp warm(plan, pending, decoder, clock, stop);
  bool first = true;
  for (RunningArm& arm : arms) {
    if (arm.endpoint != nullptr) continue;  // warm_up_endpoints()
    if (plan.suite.warmup != 0) progress.warming_up(arm.planned->record.label);
    if (plan.suite.warmup >= 0)
      warm.fixed(arm);
    else
      warm.until_steady(arm, first);
    first = false;
  }
}

}  // namespace evalrun::runners
