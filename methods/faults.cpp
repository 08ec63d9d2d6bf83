#include "methods/faults.h"

#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "methods/speculative_method.h"
#include "methods/verifier_faults.h"
#include "methods/wrapped_method.h"

namespace evalrun::methods {
namespace {

constexpr std::string_view kSlow = "slow:", kWrongAccept = "wrong-accept:";
constexpr int64_t kEvery = 4;     // steps between two planted errors
constexpr int64_t kPatience = 4;  // steps to wait for a rejected draft before the bonus is changed

// Spins after each step for a share of what the step took; shows as "other" time.
class SlowMethod final : public WrappedMethod {
 public:
  SlowMethod(std::unique_ptr<DecodingMethod> method, double share)
      : WrappedMethod(std::move(method)), share_(share) {}
  std::unique_ptr<DecodingMethod> another(int slot) const override {
    return std::make_unique<SlowMethod>(another_wrapped(slot), share_);
  }
  void after_step(PhaseTimer& timer) override {
    WrappedMethod::after_step(timer);
    timer.enter(PhaseTimer::kOther);
    const auto own = static_cast<double>(timer.total_ns());
    int64_t last = timer.total_ns();
    int still = 0;
    while (static_cast<double>(timer.total_ns()) < own * (1.0 + share_)) {
      timer.enter(PhaseTimer::kOther);
      still = timer.total_ns() == last ? still + 1 : 0;
      last = timer.total_ns();
      EVALRUN_CHECK(still < 1'000'000, "slow: the clock stands still");
    }
  }

 private:
  double share_;
};

// Knows the number of the step, from 1 on in every turn.
class Counting : public WrappedMethod {
 public:
  using WrappedMethod::WrappedMethod;
  void start(const GenerationContext& context) final {
    WrappedMethod::start(context);
    step_ = 0;
  }
  StepOutcome finish_step() final {
    StepOutcome outcome = WrappedMethod::finish_step();
    break_step(++step_, outcome);
    return outcome;
  }

 private:
  virtual void break_step(int64_t step, StepOutcome& outcome) = 0;
  int64_t step_ = 0;
};

// Reports one accepted token too many every few steps; what it emits stays right.
class MiscountingMethod final : public Counting {
 public:
  using Counting::Counting;
  std::unique_ptr<DecodingMethod> another(int slot) const override {
    return std::make_unique<MiscountingMethod>(another_wrapped(slot));
  }

 private:
  void break_step(int64_t step, StepOutcome& outcome) override {
    if (step % kEvery == 0) ++outcome.accepted;
  }
};

// Breaks like a GPU in the middle of the third step.
class BreakingDevice final : public Counting {
 public:
  using Counting::Counting;
  std::unique_ptr<DecodingMethod> another(int slot) const override {
    return std::make_unique<BreakingDevice>(another_wrapped(slot));
  }

 private:
  void break_step(int64_t step, StepOutcome&) override {
    if (step == 3) throw base::DeviceFault("none", "a planted fault", "step 3");
  }
};

// A child of the last accepted node that the target did not want, -1 without one.
int rejected_child(const SpeculativeMethod::Verdict& verdict) {
  const TokenTree& tree = verdict.tree;
  for (int i = 1; i < tree.size(); ++i)
    if (tree.parent[static_cast<size_t>(i)] == verdict.path.back() &&
        tree.token[static_cast<size_t>(i)] != verdict.bonus)
      return i;
  return -1;
}

// Accepts a rejected draft token every few steps. Sometimes none is rejected for a while: nothing
// is drafted, as in autoregressive decoding, or the draft is always right. Then it changes the
// target's own token to one that nobody verified. What is emitted is what is committed, so the
// generation goes on.
class WrongAcceptance {
 public:
  void operator()(const SpeculativeMethod::Verdict& verdict) {
    if (verdict.step == 0) last_ = -1;
    if (verdict.step - last_ < kEvery) return;
    const int node = rejected_child(verdict);
    if (node >= 0) {
      verdict.path.push_back(node);
      verdict.bonus = verdict.target.top(node);
    } else if (verdict.step - last_ >= kEvery + kPatience) {
      verdict.bonus = verdict.bonus == 0 ? 1 : verdict.bonus - 1;  // another id, always a valid one
    } else {
      return;
    }
    last_ = verdict.step;
  }

 private:
  int64_t last_ = -1;  // step of the last planted error
};

// Accepts a share of the rejected draft tokens, evenly, counted over all generations. What follows
// is the target's likeliest token after it.
class ShareOfWrongAcceptance {
 public:
  explicit ShareOfWrongAcceptance(double share) : share_(share) {}
  void operator()(const SpeculativeMethod::Verdict& verdict) {
    const int node = rejected_child(verdict);
    if (node < 0) return;
    owed_ += share_;
    if (owed_ < 1) return;
    owed_ -= 1;
    verdict.path.push_back(node);
    verdict.bonus = verdict.target.top(node);
  }

 private:
  double share_, owed_ = 0;
};

// The share in percent after `prefix`, "10%".
double parse_share(const std::string& fault, std::string_view prefix, double most) {
  std::string_view text = std::string_view(fault).substr(prefix.size());
  const bool in_percent = text.ends_with('%');
  if (in_percent) text.remove_suffix(1);
  const auto percent = base::parse_number<double>(text);
  if (!in_percent || !percent || *percent <= 0 || *percent > most) {
    const std::string_view name = prefix.substr(0, prefix.size() - 1);
    throw base::usage_error(
        fmt::format("fault '{}' takes a share in percent, found '{}'", name, fault),
        fmt::format("write {}10%, more than 0 and at most {}", prefix, most));
  }
  return *percent / 100;
}

}  // namespace

std::vector<std::string> known_faults() {
  std::vector<std::string> known = {"slow:10%", "wrong-accept", "miscount", "device-fault"};
  for (const VerifierFault& fault : verifier_faults()) known.emplace_back(fault.example);
  return known;
}

std::unique_ptr<DecodingMethod> plant_fault(std::unique_ptr<DecodingMethod> method,
                                            const std::string& fault) {
  EVALRUN_CHECK(method != nullptr);
  if (fault.starts_with(kSlow))
    return std::make_unique<SlowMethod>(std::move(method), parse_share(fault, kSlow, 1000));
  if (fault == "miscount") return std::make_unique<MiscountingMethod>(std::move(method));
  if (fault == "device-fault") return std::make_unique<BreakingDevice>(std::move(method));
  if (fault == "wrong-accept") {
    with_verdicts(*method, "fault 'wrong-accept'").set_verdict_hook(WrongAcceptance{});
    return method;
  }
  if (fault.starts_with(kWrongAccept)) {
    with_verdicts(*method, "fault 'wrong-accept'")
        .set_verdict_hook(ShareOfWrongAcceptance{parse_share(fault, kWrongAccept, 100)});
    return method;
  }
  for (const VerifierFault& known : verifier_faults()) {
    const std::string prefix = fmt::format("{}{}", known.name, known.most > 0 ? ":" : "");
    if (known.most > 0 ? !fault.starts_with(prefix) : fault != prefix) continue;
    plant_verifier_fault(*method, known,
                         known.most > 0 ? parse_share(fault, prefix, known.most) : 1.0);
    return method;
  }
  throw base::usage_error(fmt::format("unknown fault '{}'", fault),
                          base::suggest(fault, known_faults()));
}

}  // namespace evalrun::methods
