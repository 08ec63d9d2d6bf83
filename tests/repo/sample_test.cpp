// Samples of what is exhaustive: repeatable, of the asked size, and nothing is left out for ever.
#include "tests/sample.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

namespace evalrun::tests {
namespace {

TEST(Sample, IsRepeatedByItsSeedAndDiffersBetweenTests) {
  const auto first = choose(100, 10, 7, "A.b");
  EXPECT_EQ(first.size(), 10u);
  EXPECT_EQ(choose(100, 10, 7, "A.b"), first);
  EXPECT_NE(choose(100, 10, 8, "A.b"), first);
  EXPECT_NE(choose(100, 10, 7, "A.c"), first);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
}

TEST(Sample, EverythingHasItsTurn) {
  std::set<size_t> met;
  for (uint32_t seed = 0; seed < 200; ++seed)
    for (const size_t i : choose(30, 2, seed, "A.b")) met.insert(i);
  EXPECT_EQ(met.size(), 30u);
  EXPECT_EQ(*met.rbegin(), 29u);
}

TEST(Sample, IsAllWhereSoMuchIsAskedFor) {
  EXPECT_THAT(sample({3, 1, 2}, 3), ::testing::ElementsAre(3, 1, 2));
  EXPECT_THAT(sample({3, 1, 2}, 9), ::testing::ElementsAre(3, 1, 2));
  const bool everything = test_everything();
  EXPECT_EQ(sample({3, 1, 2}, 1).size(), everything ? 3u : 1u);
}

}  // namespace
}  // namespace evalrun::tests
