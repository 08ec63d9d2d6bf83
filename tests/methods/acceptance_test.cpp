// A drafter of known quality on a small model: tau must be what theory predicts.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/methods/support/drafters.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests {
namespace {

// Leviathan et al. 2023: with k drafts, each right with probability alpha independently, a step
// emits (1 - alpha^(k+1)) / (1 - alpha) tokens on average.
TEST(ScriptedAcceptance, TauFollowsAlpha) {
  constexpr int kVocab = 24, kNew = 1500;
  const auto model = small_model(7, kVocab);
  const auto session = make_session(model, kNew + 64);
  Turn turn{{1, 2, 3}, 0, kNew};
  const auto plain = run(*build_method("ar", model, kNew + 64), *session, turn);
  Tokens text = turn.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());

  for (double alpha : {0.0, 0.5, 0.8, 1.0}) {
    for (int k : {1, 4}) {
      const auto method = methods::make_speculative_method(
          std::make_unique<OracleDrafter>(text, k, alpha, kVocab, 99));
      const auto record = run(*method, *session, turn);
      ASSERT_EQ(record.tokens, plain.tokens) << "alpha " << alpha << ", k " << k;
      double sum = 0, squares = 0;
      int n = 0;
      for (const auto& s : record.steps) {
        if (s.drafted < k) continue;  // the limit left no room for k drafts
        sum += s.emitted;
        squares += static_cast<double>(s.emitted) * s.emitted;
        ++n;
      }
      const double tau = sum / n;
      const double predicted = alpha == 1 ? k + 1 : (1 - std::pow(alpha, k + 1)) / (1 - alpha);
      // Four standard errors of the mean over independent steps; none at alpha 0 and 1. Fixed seed.
      const double error = std::sqrt(std::max(squares / n - tau * tau, 0.0) / n);
      EXPECT_NEAR(tau, predicted, 4 * error + 1e-12) << "alpha " << alpha << ", k " << k;
      EXPECT_LT(4 * error, 0.4) << "too few steps to say anything: " << n;
    }
  }
}

}  // namespace
}  // namespace evalrun::tests
