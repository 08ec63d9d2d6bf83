// How long a chain a drafting model drafts, and when it stops early. Rules of published programs
// (methods in the order of the parameters):
//  - constant: k tokens.
//  - heuristic (transformers' assisted generation): k tokens at first, two more after a draft that
//    was wholly right, one less after any other. Forgotten with the generation (transient), or
//    carried on from one to the next (heuristic).
//  - threshold: drafting stops after a token that the drafting model gave less probability than
//    this, at temperature 1. That token is still submitted, so what is tested does not depend on
//    its value.
//  - entropy (SVIP, Zhang et al. 2024, arXiv 2411.18462; after the abstract and the released
//    program, whose c = 0.15 it has): drafting stops after a token whose distribution q, at
//    temperature 1, has sqrt(c H(q)) above this. 1 less the root estimates a lower bound of the
//    acceptance. That token is still submitted. The program has 0.3 and drafts at most 40 tokens.
//    What differs: the program stops behind an end-of-text token, too, and measures at the
//    temperature it samples at, which is 1.
//  - adaptive threshold (Zhang et al. 2024, "Draft & Verify", arXiv 2309.08168, section 4.2;
//    constants of the released program): the threshold follows the acceptance rate.
#pragma once
#include <span>

namespace evalrun::methods {

struct DraftLengthRule {
  enum class Schedule { kConstant, kTransient, kHeuristic } schedule = Schedule::kConstant;
  int k = 4;
  int most = 64;         // a schedule grows no further
  double threshold = 0;  // 0 = no early stop
  double entropy = 0;    // 0 = no early stop
  bool adapt_threshold = false;
  bool carry_threshold = false;  // from one generation to the next
};

// Of the distribution that logits give at temperature 1, in nats. Logits of -inf have no part in
// it.
double entropy_of(std::span<const float> logits);

class DraftLength {
 public:
  explicit DraftLength(const DraftLengthRule& rule);
  void start();  // of a generation
  int length() const;
  bool watches_confidence() const { return rule_.threshold > 0; }
  bool stops_behind(double probability) const { return probability < threshold_; }
  double threshold() const { return threshold_; }
  bool watches_entropy() const { return rule_.entropy > 0; }
  bool stops_at_entropy(double nats) const;
  // After a verification of `drafted` > 0 tokens of which `matched` were accepted; `asked` is what
  // length() and the room after the context allowed.
  void verified(int drafted, int matched, int asked);

 private:
  DraftLengthRule rule_;
  double length_ = 0, threshold_ = 0, acceptance_ = 0;
};

}  // namespace evalrun::methods
