#include "runners/train/skip_search.h"

#include <gtest/gtest.h>

#include "tests/methods/support/harness.h"

namespace evalrun::tests {
namespace {

using runners::estimate_skip;
using runners::SkipEstimate;

double cheap_rows(int n) { return 1 + 0.01 * (n - 1); }

TEST(SkipEstimate, AlwaysRightTakesTheLongestDraft) {
  const std::vector<std::vector<bool>> agrees = {std::vector<bool>(60, true)};
  const SkipEstimate e = estimate_skip(agrees, 0.1, 5, cheap_rows);
  EXPECT_EQ(e.k, 5);
  EXPECT_DOUBLE_EQ(e.tau, 6);
  EXPECT_DOUBLE_EQ(e.agreement, 1);
  EXPECT_NEAR(e.speedup, 6 / (1.05 + 0.5), 1e-12);
}

TEST(SkipEstimate, AlternatingAgreementPaysOneTokenDrafts) {
  std::vector<bool> text;
  for (int i = 0; i < 40; ++i) text.push_back(i % 2 == 0);
  const SkipEstimate e = estimate_skip({text}, 0.3, 8, cheap_rows);
  EXPECT_EQ(e.k, 1);
  EXPECT_DOUBLE_EQ(e.tau, 2);
  EXPECT_DOUBLE_EQ(e.agreement, 0.5);
}

TEST(SkipEstimate, NeverRightLoses) {
  const SkipEstimate e = estimate_skip({std::vector<bool>(20, false)}, 0.5, 8, cheap_rows);
  EXPECT_EQ(e.k, 1);
  EXPECT_DOUBLE_EQ(e.tau, 1);
  EXPECT_LT(e.speedup, 1);
}

// The search's agreement is that of the method itself: one forward over the answer with the set.
TEST(SkipSearch, LeavesOutOneSublayerAfterTheOther) {
  const auto model = small_model(4);
  engine::SessionOptions options = session_options(128);
  options.n_sequences = 2;
  const auto session = engine::Session::create(model, options);
  const auto plain = make_session(model);
  const auto ar = build_method("ar", model);
  std::vector<runners::SkipText> texts;
  for (const Tokens& prompt : {Tokens{1, 2, 3, 4}, Tokens{7, 7, 9}}) {
    plain->reset();
    Turn turn{prompt};
    turn.max_new = 20;
    texts.push_back({prompt, run(*ar, *plain, turn).tokens});
  }
  engine::RowCostTable costs;
  engine::RowCost one, many;
  one.rows = 1;
  one.ms = 1;
  many.rows = 64;
  many.ms = 1.5;
  costs.rows = {one, many};
  runners::SkipSearchOptions search;
  search.seconds = 60;
  const auto path = runners::search_skip_set(*session, texts, costs, search);
  ASSERT_GE(path.size(), 1u);
  double kept = 1;
  size_t skipped = 0;
  for (const SkipEstimate& e : path) {
    EXPECT_LT(e.kept, kept);
    kept = e.kept;
    const auto n =
        static_cast<size_t>(std::count(e.skip.attention.begin(), e.skip.attention.end(), true) +
                            std::count(e.skip.mlp.begin(), e.skip.mlp.end(), true));
    EXPECT_EQ(n, ++skipped);
    EXPECT_GE(e.agreement, 0);
    EXPECT_LE(e.agreement, 1);
  }
  EXPECT_EQ(session->length(0), 0);
}

}  // namespace
}  // namespace evalrun::tests
