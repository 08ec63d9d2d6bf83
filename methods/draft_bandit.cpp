#include "methods/draft_bandit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace evalrun::methods {

void DraftBandit::start() {
  arms_.assign(told_.size(), Arm{});
  for (size_t i = 0; i < arms_.size(); ++i)
    if (told_[i]) arms_[i] = {1, 1};
}

double DraftBandit::index_of(int arm, double all) const {
  const Arm& a = arms_[static_cast<size_t>(arm)];
  if (a.n == 0) return std::numeric_limits<double>::infinity();
  const double mean = a.reward / a.n;
  if (told_[static_cast<size_t>(arm)]) return mean;
  return mean + kExplore * std::sqrt(std::log1p(all) / a.n);
}

int DraftBandit::choose(base::FunctionRef<bool(int)> may) {
  double all = 0;
  for (Arm& arm : arms_) {
    arm.reward *= kFade;
    arm.n *= kFade;
    all += arm.n;
  }
  int best = kPlain;
  double largest = 1;
  for (size_t i = 0; i < arms_.size(); ++i) {
    const int arm = static_cast<int>(i);
    const double index = index_of(arm, all);
    // As good as plain decoding is good enough: it may become better, and says so at no cost.
    const bool better = best == kPlain && told_[i] ? index >= largest : index > largest;
    if (!better || (!told_[i] && !may(arm))) continue;
    best = arm;
    largest = index;
  }
  return best;
}

void DraftBandit::note(int arm, double reward) {
  EVALRUN_CHECK(reward >= 0, "arm {}: a reward of {}", arm, reward);
  Arm& a = arms_[static_cast<size_t>(arm)];
  a.reward += std::min(reward, kMostReward);
  a.n += 1;
}

void HeldPlan::hold(const TokenTree& plan, double cost) {
  EVALRUN_CHECK(cost > 0, "a plan that costs {}", cost);
  if (open_) return;
  plan_ = plan;
  cost_ = cost;
  at_ = tokens_ = 0;
  open_ = true;
}

double HeldPlan::see(int32_t token) {
  if (!open_) return -1;
  ++tokens_;  // one that is not held is the target's own, and comes as well
  at_ = plan_.child(at_, token);
  open_ = at_ >= 0;
  return open_ ? -1 : tokens_ / cost_;
}

}  // namespace evalrun::methods
