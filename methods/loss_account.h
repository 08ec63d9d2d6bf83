// What drafting has cost an answer beside plain decoding, and what it has saved: in plain steps, by
// the table of row costs (T(n)/T(1)) and never by a clock. So that drafts which cost forwards can
// be kept from losing more than a share of the answer (methods/joined_draft.h).
//
// A step that emits n tokens would have been n plain steps; it was paid with its rows and with the
// drafters' forwards. 1 % of the tokens so far may be lost, and 2 % of the first 64 in advance: 3 %
// of an answer of 64 tokens, less of a longer one. Gains pay for later losses up to 16 plain steps:
// what a look-up gains all along shall not be lost by another part at the end.
#pragma once
#include <algorithm>

namespace evalrun::methods {

class LossAccount {
 public:
  static constexpr double kShare = 0.01, kAdvance = 0.02, kMostCredit = 16;
  static constexpr int kAdvanceTokens = 64;

  // `max_new`: tokens of the answer at most.
  void start(int max_new) {
    balance_ = 0;
    floor_ = -kAdvance * std::min(max_new, kAdvanceTokens);
  }
  // A step has emitted `tokens` and cost `cost` plain steps.
  void settle(int tokens, double cost) {
    balance_ = std::min(balance_ + tokens - cost, kMostCredit);
    floor_ -= kShare * tokens;
  }
  double balance() const { return balance_; }  // < 0: plain decoding would be ahead
  double floor() const { return floor_; }      // what the balance should not fall below
  // Whether a step may be taken that loses so much at worst.
  bool affords(double loss) const { return balance_ - loss >= floor_; }

 private:
  double balance_ = 0, floor_ = 0;
};

}  // namespace evalrun::methods
