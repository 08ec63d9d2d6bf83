// Which arms form a curve or a grid.
#include "reports/html/sweeps.h"

#include <gtest/gtest.h>

namespace evalrun::reports {
namespace {

ArmInfo arm(const std::string& method, const std::string& params) {
  ArmInfo a;
  a.method = method;
  a.params = params;
  a.label = method + ":" + params;
  a.role = "method";
  return a;
}

TEST(Sweeps, ACurveNeedsArmsThatAgreeInAllElse) {
  const auto sweeps = find_sweeps(
      {arm("pld", "adaptive=false,k=8,ngram=3"), arm("pld", "adaptive=false,k=2,ngram=3"),
       arm("pld", "adaptive=true,k=4,ngram=3"), arm("rest", "k=2"), arm("rest", "k=none")});
  ASSERT_EQ(sweeps.size(), 1u);
  EXPECT_EQ(sweeps[0].method, "pld");
  EXPECT_EQ(sweeps[0].parameters, std::vector<std::string>{"k"});
  EXPECT_EQ(sweeps[0].fixed, "adaptive=false") << "adaptive=true is another one";
  ASSERT_EQ(sweeps[0].points.size(), 2u);
  EXPECT_EQ(sweeps[0].points[0].values, std::vector<double>{2});
  EXPECT_EQ(sweeps[0].points[0].label, "pld:adaptive=false,k=2,ngram=3");
  EXPECT_EQ(sweeps[0].points[1].values, std::vector<double>{8});
}

TEST(Sweeps, ValuesMayHoldCommas) {
  const auto sweeps = find_sweeps(
      {arm("eagle", "k=1,tree=1,2"), arm("eagle", "k=2,tree=1,2"), arm("eagle", "k=3,tree=1,3")});
  ASSERT_EQ(sweeps.size(), 1u);
  EXPECT_EQ(sweeps[0].points.size(), 2u);
  EXPECT_EQ(sweeps[0].fixed, "tree=1,2");
}

TEST(Sweeps, TwoParametersComeBeforeTheirCurves) {
  std::vector<ArmInfo> arms;
  for (const char* k : {"10", "2"})
    for (const char* p : {"0.5", "0.9"}) arms.push_back(arm("sps", fmt::format("k={},p={}", k, p)));
  const auto sweeps = find_sweeps(arms);
  ASSERT_EQ(sweeps.size(), 5u);
  EXPECT_EQ(sweeps[0].parameters, (std::vector<std::string>{"k", "p"}));
  EXPECT_EQ(sweeps[0].points.size(), 4u);
  EXPECT_EQ(sweeps[0].points[0].values, (std::vector<double>{2, 0.5})) << "by value, not as text";
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(sweeps[i].points.size(), 2u);
  arms.pop_back();  // three of four cells: no grid, the curves that are left
  EXPECT_EQ(find_sweeps(arms).size(), 2u);
}

TEST(Sweeps, OtherModesAndRolesStayApart) {
  ArmInfo a = arm("pld", "k=2"), b = arm("pld", "k=4");
  EXPECT_EQ(find_sweeps({a, b}).size(), 1u);
  b.temperature = 0.8;
  EXPECT_TRUE(find_sweeps({a, b}).empty());
  b = arm("pld", "k=4");
  b.role = "aa";
  EXPECT_TRUE(find_sweeps({a, b}).empty());
  EXPECT_TRUE(find_sweeps({a, a}).empty()) << "one value";
  EXPECT_TRUE(find_sweeps({}).empty());
}

}  // namespace
}  // namespace evalrun::reports
