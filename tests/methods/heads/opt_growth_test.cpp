// OPT-Tree's threshold against all subtrees, and the trees that follow from it.
#include "methods/heads/opt_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "methods/heads/confidence_tree.h"
#include "methods/registration.h"

namespace evalrun::tests::opt_growth_test {
namespace {

using methods::ConfidenceTree;
using methods::OptGrowth;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct SeenTree {
  std::vector<int> parent;          // -1 = the root
  std::vector<double> probability;  // of the path
};

// The largest sum over all subtrees of at most n nodes that hang together with the root.
double largest_sum(const SeenTree& seen, int n) {
  double largest = 0;
  const auto size = static_cast<unsigned>(seen.parent.size());
  for (unsigned set = 0; set < (1u << size); ++set) {
    if (std::popcount(set) > n) continue;
    double sum = 0;
    bool connected = true;
    for (unsigned i = 0; i < size; ++i) {
      if (((set >> i) & 1u) == 0) continue;
      const int parent = seen.parent[i];
      connected = connected && (parent < 0 || ((set >> parent) & 1u) != 0);
      sum += seen.probability[i];
    }
    if (connected) largest = std::max(largest, sum);
  }
  return largest;
}

TEST(OptGrowth, ExpectsWhatTheBestSubtreeGives) {
  base::Rng rng(3);
  for (int round = 0; round < 20; ++round) {
    const int n = 1 + static_cast<int>(rng.below(5));
    OptGrowth growth(n, 0.1, 9);
    for (int step = 0; step < 2; ++step) {  // clear() forgets the first
      growth.clear();
      SeenTree seen;
      std::vector<int> level = {-1};
      double before = 0;
      for (int depth = 0; depth < 3; ++depth) {
        std::vector<int> next;
        for (const int parent : level)
          for (int child = 0; child < 2 && seen.parent.size() < 12; ++child) {
            const double above = parent < 0 ? 1 : seen.probability[static_cast<size_t>(parent)];
            next.push_back(static_cast<int>(seen.parent.size()));
            seen.parent.push_back(parent);
            seen.probability.push_back(above * 0.5 * rng.uniform());
            growth.add(seen.probability.back());
          }
        level = next;
        const bool grows = growth.grows();
        const double best = largest_sum(seen, n);
        EXPECT_NEAR(growth.expected(), best, 1e-12);
        EXPECT_EQ(grows, best - before > 0.1);
        before = best;
      }
    }
  }
}

// The second level gives 0.35 and 0.27 beside 0.5 and 0.3: 1.42 after 0.8 with four nodes, but the
// best two are 0.5 and 0.35, 0.85 after 0.8.
std::vector<int> third_level(int nodes, double delta) {
  ConfidenceTree tree({.k = 2, .levels = 4, .total = nodes, .delta = delta}, nullptr);
  tree.clear(0.1);
  tree.add(-1, 0, 10, std::log(0.5));
  tree.add(-1, 0, 11, std::log(0.3));
  EXPECT_THAT(tree.next_level(0.1, 1), ElementsAre(0, 1)) << "0.8 is gained";
  tree.add(0, 5, 20, std::log(0.7));
  tree.add(1, 6, 22, std::log(0.9));
  const auto level = tree.next_level(0.1, 1);
  return {level.begin(), level.end()};
}

TEST(OptGrowth, EndsATreeWhoseLevelsGainTooLittle) {
  EXPECT_THAT(third_level(4, 0.61), ElementsAre(2, 3));
  EXPECT_THAT(third_level(4, 0.63), IsEmpty()) << "0.62";
  EXPECT_THAT(third_level(2, 0.04), ElementsAre(2, 3));
  EXPECT_THAT(third_level(2, 0.06), IsEmpty()) << "not what the level gives, what it adds";
  EXPECT_THAT(third_level(2, 0), ElementsAre(2, 3)) << "0 = all levels";
}

TEST(OptGrowth, TheFirstLevelIsMeasuredToo) {
  ConfidenceTree tree({.k = 2, .levels = 4, .total = 2, .delta = 0.5}, nullptr);
  tree.clear(0.1);
  tree.add(-1, 0, 10, std::log(0.3));
  tree.add(-1, 0, 11, std::log(0.1));
  EXPECT_THAT(tree.next_level(0.1, 1), IsEmpty()) << "0.4";
}

TEST(OptGrowth, NeedsANumberOfNodes) {
  try {
    methods::parse_method("eagle2:delta=0.5,total=0");
    FAIL() << "accepted";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("eagle2: delta=0.5"));
    EXPECT_THAT(e.what(), HasSubstr("give total"));
  }
  EXPECT_NO_THROW(methods::parse_method("eagle3:k=60,total=60,levels=9,delta=0.5"));
}

}  // namespace
}  // namespace evalrun::tests::opt_growth_test
