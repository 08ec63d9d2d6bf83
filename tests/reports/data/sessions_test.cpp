// Two levels against values worked out by hand.
#include "reports/data/sessions.h"

#include <gtest/gtest.h>

#include <cmath>

namespace evalrun::reports {
namespace {

// Sessions' means 1, 3 and 3, 5. Prompts' means 1, 3 and 2, 6: differences 1 and 3.
const SessionLogs kA = {{0, 2}, {2, 4}}, kB = {{1, 5}, {3, 7}};

TEST(SessionChange, FixedSetByHand) {
  const auto c = session_change(kA, kB, Scope::kFixedSet);
  ASSERT_TRUE(c.has_value());
  EXPECT_DOUBLE_EQ(c->mean, 2);
  // Squares 2 + 2 over 2 + 2 - 2 degrees of freedom: variance 2, times 1/2 + 1/2.
  EXPECT_DOUBLE_EQ(*c->session_sd, std::sqrt(2));
  EXPECT_DOUBLE_EQ(c->standard_error, std::sqrt(2));
  EXPECT_EQ(c->dof, 2);
  EXPECT_NEAR(c->interval.hi, 2 + 4.302652729749464 * std::sqrt(2), 1e-9);
  EXPECT_NEAR(c->interval.lo, 2 - 4.302652729749464 * std::sqrt(2), 1e-9);
}

TEST(SessionChange, PopulationByHand) {
  const auto c = session_change(kA, kB, Scope::kSameKind);
  // Variance over prompts 2 / 2 = 1 with 1 degree of freedom, between sessions 2 with 2: together
  // 3, with 9 / (1/1 + 4/2) = 3.
  EXPECT_DOUBLE_EQ(c->mean, 2);
  EXPECT_DOUBLE_EQ(c->standard_error, std::sqrt(3));
  EXPECT_DOUBLE_EQ(c->dof, 3);
  EXPECT_NEAR(c->interval.hi, 2 + 3.182446305284263 * std::sqrt(3), 1e-9);
}

TEST(SessionChange, OneSessionASideIsStudentsTOverPrompts) {
  for (const Scope scope : {Scope::kFixedSet, Scope::kSameKind}) {
    const auto c = session_change({{0, 2, 1}}, {{1, 5, 1}}, scope);
    const double d[] = {1, 3, 0};
    const auto t = base::t_interval(d, 0.95);
    EXPECT_DOUBLE_EQ(c->mean, t->mean);
    EXPECT_DOUBLE_EQ(c->standard_error, t->standard_error);
    EXPECT_NEAR(c->interval.lo, t->interval.lo, 1e-12);
    EXPECT_FALSE(c->session_sd.has_value());
  }
}

TEST(SessionChange, PromptsOfAGroupAreOneUnit) {
  // Prompts' means 1, 1, 1, 1 and 2, 2, 4, 4; the groups' differences are 1 and 3: variance 1 of
  // their mean with 1 degree of freedom. Sessions' means 0, 2 and 2, 4: 2 with 2. As above.
  const SessionLogs a = {{0, 0, 0, 0}, {2, 2, 2, 2}}, b = {{1, 1, 3, 3}, {3, 3, 5, 5}};
  const Design groups = {.unit = {0, 0, 1, 1}, .stratum = {0, 0}};
  for (const Scope scope : {Scope::kSameKind, Scope::kNewKinds}) {
    const auto c = session_change(a, b, scope, 0.95, groups);
    ASSERT_TRUE(c.has_value());
    EXPECT_DOUBLE_EQ(c->mean, 2);
    EXPECT_NEAR(c->standard_error, std::sqrt(3), 1e-12);
    EXPECT_NEAR(c->dof, 3, 1e-12);
    EXPECT_DOUBLE_EQ(c->n_eff, 2);
  }
  EXPECT_DOUBLE_EQ(session_change(a, b, Scope::kSameKind)->n_eff, 4);
  const Design one = {.unit = {0, 0, 0, 0}, .stratum = {0}};
  EXPECT_FALSE(session_change(a, b, Scope::kSameKind, 0.95, one));
}

TEST(SessionChange, SidesMayHaveDifferentNumbersOfSessions) {
  // Means 1 | 2, 4, 6: squares 0 + 8 over 2; times 1 + 1/3.
  const auto c = session_change({{1}}, {{2}, {4}, {6}}, Scope::kFixedSet);
  EXPECT_DOUBLE_EQ(c->mean, 3);
  EXPECT_DOUBLE_EQ(*c->session_sd, 2);
  EXPECT_DOUBLE_EQ(c->standard_error, std::sqrt(16.0 / 3));
  EXPECT_EQ(c->dof, 2);
}

TEST(SessionChange, WhatCannotBeKnown) {
  EXPECT_FALSE(session_change({{}}, {{}}, Scope::kFixedSet).has_value());
  EXPECT_FALSE(session_change({{1}}, {{2}}, Scope::kFixedSet).has_value());
  // One prompt, two sessions a side: these prompts can be spoken of, others cannot.
  EXPECT_TRUE(session_change({{1}, {2}}, {{2}, {4}}, Scope::kFixedSet).has_value());
  EXPECT_FALSE(session_change({{1}, {2}}, {{2}, {4}}, Scope::kSameKind).has_value());
}

TEST(SessionChange, AShiftOfASessionIsSeenAndOneOfAPromptIsNot) {
  // The sessions agree; the prompts changed by very different amounts.
  const auto same = session_change({{0, 0}, {0, 0}}, {{1, 9}, {1, 9}}, Scope::kFixedSet);
  EXPECT_EQ(same->standard_error, 0);
  EXPECT_EQ(same->mean, 5);
  EXPECT_GT(session_change({{0, 0}, {0, 0}}, {{1, 9}, {1, 9}}, Scope::kSameKind)->standard_error,
            3);
}

}  // namespace
}  // namespace evalrun::reports
