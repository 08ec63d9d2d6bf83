// Which of several drafters drafts next: `hybrid:mode=bandit` (methods/joined_draft.h).
//
// A bandit whose arms are the parts, and plain decoding, whose reward is 1. The reward of a draft
// is what it gave for what it cost: tokens over plain steps, by the table of row costs, at most
// kMostReward. Rewards fade by kFade with each choice, so that what was good long ago can be given
// up. Nothing is drawn at random and nothing is timed: equal texts and prices give equal choices.
//
// Two kinds of arms.
// - Told: it drafts in every step whatever is chosen, and what it would have chosen to verify is
//   held against the text that comes (HeldPlan). So all these are known in hindsight, and the one
//   with the largest faded mean leads: follow the leader. Look-ups are told: their drafts are free.
// - Untold: it is known by the steps in which it was chosen. Its mean has a bonus for what is not
//   known, kExplore sqrt(log(1 + N) / n), n and N the faded numbers of its rewards and of all.
//   Parts that draft by forwards are untold.
//
// Sources. Full information in hindsight: Not-a-Bandit (arXiv 2510.20064). It evaluates every
// drafter on the verified text by forwards of all of them, and weighs them exponentially. Here that
// is done where it is free, and the leader is followed, because random choices would make steps
// depend on draws. UCB over arms of speculation: TapOut (arXiv 2511.02017), which chooses when to
// stop a draft; here an arm is a drafter. Fading: discounted UCB, Garivier and Moulines 2008, arXiv
// 0805.3415. All their rewards are parts of tokens accepted; here the reward is speed, because
// parts differ most in what they cost.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/function_ref.h"
#include "methods/token_tree.h"

namespace evalrun::methods {

class DraftBandit {
 public:
  static constexpr int kPlain = -1;
  static constexpr double kFade = 0.98, kExplore = 0.3, kMostReward = 4;

  // For each arm, in order, whether it is told.
  explicit DraftBandit(std::vector<bool> told) : told_(std::move(told)) { start(); }
  // Forgets everything. An arm that is told begins as if it had given 1 once; one that is not is
  // chosen once before it is compared.
  void start();
  // The arm of the next step, kPlain where none is better than plain decoding. Of equal ones the
  // first. `may(arm)`: whether an arm that is not told can be chosen now.
  int choose(base::FunctionRef<bool(int)> may);
  // What a draft of the arm gave, tokens over plain steps: >= 0.
  void note(int arm, double reward);

 private:
  struct Arm {
    double reward = 0, n = 0;
  };
  double index_of(int arm, double all) const;

  std::vector<bool> told_;
  std::vector<Arm> arms_;
};

// What a drafter would have verified, held against the tokens that come whether or not it was. One
// at a time: the next is held when this one has ended, on a token it does not hold.
class HeldPlan {
 public:
  void reserve(int nodes) { plan_.reserve(nodes); }
  void forget() { open_ = false; }
  // A tree below the text's last token; what it costs in plain steps, the root's row included.
  void hold(const TokenTree& plan, double cost);
  // The text's next token. Once it is known what the plan gave: tokens over plain steps; -1 before.
  double see(int32_t token);

 private:
  TokenTree plan_;
  double cost_ = 1;
  int at_ = 0, tokens_ = 0;  // node whose children are due; tokens that came
  bool open_ = false;
};

}  // namespace evalrun::methods
