// Loops, and texts that are none.
#include "results/repetition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace evalrun::results {
namespace {

std::vector<int32_t> counting(int n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}
// `n` tokens of a circle of `period`, after `head` tokens that are all different.
std::vector<int32_t> loop(int head, int n, int period) {
  std::vector<int32_t> tokens = counting(head);
  for (int i = 0; i < n; ++i) tokens.push_back(1000 + i % period);
  return tokens;
}

TEST(Repetition, TextWithoutAny) {
  const Repetition r = repetition_of(counting(200));
  EXPECT_EQ(r.distinct_share, 1.0);
  EXPECT_EQ(r.cycle, 0);
}

TEST(Repetition, ShortTextsHaveNoShareOfGrams) {
  EXPECT_FALSE(repetition_of({}).distinct_share);
  EXPECT_EQ(repetition_of({}).cycle, 0);
  EXPECT_FALSE(repetition_of(counting(34)).distinct_share);
  EXPECT_TRUE(repetition_of(counting(35)).distinct_share);  // 32 grams
}

TEST(Repetition, ACycleIsThreeTimesTheSameAtTheEnd) {
  EXPECT_EQ(repetition_of(loop(50, 40, 1)).cycle, 40);
  EXPECT_EQ(repetition_of(loop(50, 40, 7)).cycle, 40);
  EXPECT_EQ(repetition_of(loop(50, 40, 13)).cycle, 40);
  EXPECT_EQ(repetition_of(loop(50, 40, 14)).cycle, 0) << "not three whole times";
  EXPECT_EQ(repetition_of(loop(0, 150, 50)).cycle, 150);
  std::vector<int32_t> over = loop(50, 40, 5);
  over.push_back(7);
  EXPECT_EQ(repetition_of(over).cycle, 0) << "the loop was left";
  over.assign({3, 3, 3});
  EXPECT_EQ(repetition_of(over).cycle, 3);
}

TEST(Repetition, GramsAreCountedByContent) {
  // 4 different grams in the circle, then 97 of 100 tokens are grams.
  const Repetition r = repetition_of(loop(0, 100, 4));
  ASSERT_TRUE(r.distinct_share);
  EXPECT_DOUBLE_EQ(*r.distinct_share, 4.0 / 97);
  // Lines that begin alike and end otherwise are no cycle, but few grams are new.
  std::vector<int32_t> lines;
  for (int line = 0; line < 12; ++line) {
    for (int i = 0; i < 15; ++i) lines.push_back(i);
    lines.push_back(100 + line);
  }
  EXPECT_EQ(repetition_of(lines).cycle, 0);
  EXPECT_GT(*repetition_of(lines).distinct_share, kLeastDistinctShare);
  EXPECT_LT(*repetition_of(lines).distinct_share, 0.4);
}

}  // namespace
}  // namespace evalrun::results
