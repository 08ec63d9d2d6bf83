// A plan cut into shards: every prompt once, balanced, the same keys, places and seeds as in one
// piece.
#include "runners/plan/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "runners/machine/row_cost_cache.h"
#include "tests/runners/small_plans.h"

namespace evalrun::runners {
namespace {

using ::testing::HasSubstr;

constexpr int kPrompts = 11;

// Of lengths that differ, one with two turns.
std::string uneven_prompts() {
  std::vector<std::string> lines;
  for (int i = 0; i < kPrompts; ++i)
    lines.push_back(fmt::format(R"({{"id": "p{}", "turns": ["{}"{}]}})", i,
                                std::string(static_cast<size_t>(1 + 7 * i % 23), 'a'),
                                i == 4 ? R"(, "and on")" : ""));
  return write_prompts("uneven.jsonl", lines);
}

PlanRequest uneven_request() {
  PlanRequest request = request_for(uneven_prompts());
  request.suite.repeats = 2;
  return request;
}

RunPlan shard_of(PlanRequest request, int number, int count) {
  request.shard = {number, count};
  return make_plan(request);
}

base::Error refusal(const PlanRequest& request, int count) {
  try {
    shard_of(request, 1, count);
  } catch (const base::Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return base::usage_error("none");
}

TEST(Shards, Names) {
  EXPECT_EQ(parse_shard("1/1"), (results::Shard{1, 1}));
  EXPECT_EQ(parse_shard("3/12"), (results::Shard{3, 12}));
  for (const char* text :
       {"", "/", "1", "0/3", "4/3", "-1/3", "1/0", "a/3", "1/3x", "1.5/3", "1/2/3"})
    try {
      parse_shard(text);
      ADD_FAILURE() << text;
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      EXPECT_THAT(e.what(), HasSubstr("--shard"));
      EXPECT_THAT(e.what(), HasSubstr("2/3"));
    }
}

TEST(Shards, EveryVisitOnceInItsPlaceWhateverTheirNumber) {
  const RunPlan whole = make_plan(uneven_request());
  for (int count = 1; count <= kPrompts; ++count) {
    SCOPED_TRACE(count);
    std::vector<Visit> visits;
    std::set<std::string> keys;
    for (int number = 1; number <= count; ++number) {
      const RunPlan part = shard_of(uneven_request(), number, count);
      ASSERT_FALSE(part.schedule.empty());
      // What the whole plan has of it, in its order.
      std::vector<Visit> expected;
      for (const Visit& v : whole.schedule)
        if (part.shard_of[static_cast<size_t>(v.prompt)] == number) expected.push_back(v);
      EXPECT_EQ(part.schedule, expected);
      visits.insert(visits.end(), part.schedule.begin(), part.schedule.end());
      ASSERT_EQ(part.prompts.size(), whole.prompts.size());
      ASSERT_EQ(part.arms.size(), whole.arms.size());
      for (size_t i = 0; i < whole.prompts.size(); ++i)
        EXPECT_EQ(part.prompts[i].record.key, whole.prompts[i].record.key);
      for (size_t i = 0; i < whole.arms.size(); ++i)
        EXPECT_EQ(part.arms[i].record.key, whole.arms[i].record.key);
      EXPECT_EQ(part.whole, whole.whole);
      EXPECT_EQ(part.waves, whole.waves);
      keys.insert(part.run.key);
    }
    EXPECT_EQ(keys, std::set<std::string>{whole.whole.key}) << "one run, whichever shard";
    EXPECT_EQ(visits.size(), whole.schedule.size());
    for (const Visit& v : whole.schedule) EXPECT_EQ(std::count(visits.begin(), visits.end(), v), 1);
  }
  EXPECT_NE(whole.run.key, whole.whole.key);
  EXPECT_EQ(whole.whole.generations(), static_cast<int64_t>(whole.schedule.size()));
  EXPECT_FALSE(whole.shard.has_value());
}

TEST(Shards, NoneIsLongerThanAnotherByMoreThanOnePrompt) {
  const RunPlan whole = make_plan(uneven_request());
  int64_t longest = 0;
  for (const PlannedPrompt& p : whole.prompts) longest = std::max(longest, shard_cost(p));
  EXPECT_EQ(shard_cost(whole.prompts[4]), longest) << "two turns";
  for (int count = 2; count <= kPrompts; ++count) {
    const std::vector<int> numbers = cut_plan(whole, count);
    std::vector<int64_t> load(static_cast<size_t>(count), 0);
    for (size_t i = 0; i < numbers.size(); ++i)
      load[static_cast<size_t>(numbers[i] - 1)] += shard_cost(whole.prompts[i]);
    const auto [least, most] = std::minmax_element(load.begin(), load.end());
    EXPECT_LE(*most - *least, longest) << count;
  }
}

TEST(Shards, TheKeyIsThatOfNoMachine) {
  PlanRequest there = uneven_request();
  there.session.n_threads = 2;
  const RunPlan a = shard_of(uneven_request(), 1, 2), b = shard_of(there, 2, 2);
  EXPECT_EQ(a.run.key, b.run.key);
  EXPECT_NE(a.arms[0].record.key, b.arms[0].record.key);
  EXPECT_EQ(plan_arm_key(a.arms[0].record), plan_arm_key(b.arms[0].record));
  EXPECT_NE(a.machine.key, b.machine.key) << "other threads are another machine";
  results::ArmRecord arm = a.arms[0].record, other = arm;
  other.isa = "avx2", other.device = "cpu";
  EXPECT_EQ(plan_arm_key(arm), plan_arm_key(other));
  arm.device = "cuda:0", other.device = "cuda:3";
  EXPECT_EQ(plan_arm_key(arm), plan_arm_key(other));
  other.device = "cpu";
  EXPECT_NE(plan_arm_key(arm), plan_arm_key(other));
  other = arm;
  arm.settings["bits"] = other.settings["bits"] = "one-isa";
  other.isa = "avx2";
  EXPECT_NE(plan_arm_key(arm), plan_arm_key(other)) << "there kernels decide about bits";
  // Whatever else is asked for is another run.
  PlanRequest seed = uneven_request(), label = uneven_request(), nonce = uneven_request();
  seed.suite.seed = 9;
  label.label = "mine";
  nonce.nonce = "n";
  for (const PlanRequest& request : {seed, label, nonce})
    EXPECT_NE(shard_of(request, 1, 2).run.key, a.run.key);
}

TEST(Shards, WavesOfBatchesStayWhole) {
  const PlanRequest request = in_batches(uneven_request(), {1, 2});
  const RunPlan whole = make_plan(request);
  ASSERT_LT(whole.waves.size(), whole.prompts.size());
  const auto most = static_cast<int>(whole.waves.size());
  for (int count = 2; count <= most; ++count) {
    const RunPlan part = shard_of(request, 1, count);
    for (const std::vector<int>& wave : whole.waves)
      for (const int p : wave)
        EXPECT_EQ(part.shard_of[static_cast<size_t>(p)],
                  part.shard_of[static_cast<size_t>(wave.front())]);
  }
  const base::Error e = refusal(request, most + 1);
  EXPECT_THAT(e.what(), HasSubstr(fmt::format("only {} can be filled", most)));
  EXPECT_THAT(e.what(), HasSubstr("stay together"));
}

TEST(Shards, GroupsOfPromptsStayWhole) {
  std::vector<std::string> lines;
  for (int i = 0; i < 6; ++i)
    lines.push_back(fmt::format(R"({{"id": "p{}", "turns": ["text {}"], "group": "{}"}})", i, i,
                                i % 2 == 0 ? "even"
                                : i == 1   ? ""
                                           : "odd"));
  const PlanRequest request = request_for(write_prompts("groups.jsonl", lines));
  const std::vector<int> numbers = shard_of(request, 1, 3).shard_of;
  EXPECT_EQ(numbers[0], numbers[2]);
  EXPECT_EQ(numbers[0], numbers[4]);
  EXPECT_EQ(numbers[3], numbers[5]);
  EXPECT_EQ((std::set<int>{numbers[0], numbers[1], numbers[3]}), (std::set<int>{1, 2, 3}));
  EXPECT_THAT(refusal(request, 4).what(), HasSubstr("cut it into 3 shards or fewer"));
}

TEST(Shards, WhatCannotBeCutIsRefused) {
  EXPECT_THAT(refusal(uneven_request(), kPrompts + 1).what(),
              HasSubstr(fmt::format("{} shards, but only {}", kPrompts + 1, kPrompts)));
  PlanRequest carries = uneven_request();
  carries.suite.methods = {"ar", "suffix:state=warm"};
  complete_suite(carries.suite, "test");
  const base::Error e = refusal(carries, 2);
  EXPECT_EQ(e.code(), base::ExitCode::kUsage);
  EXPECT_THAT(e.what(), HasSubstr("suffix:state=warm"));
  EXPECT_THAT(e.what(), HasSubstr("prompts before"));
  EXPECT_NO_THROW(make_plan(carries));
}

TEST(Shards, AGivenTableIsAmongTheSettingsOfMethodsThatGoByIt) {
  PlanRequest request = uneven_request();
  request.suite.methods = {"ar", "pld", "pld:adaptive=true"};
  complete_suite(request.suite, "test");
  const RunPlan measured = make_plan(request);
  request.row_cost = steep_rows();
  const RunPlan given = make_plan(request);
  EXPECT_TRUE(given.row_cost->given);
  EXPECT_EQ(given.row_cost->table.rows.size(), 3u);
  ASSERT_EQ(given.arms.size(), measured.arms.size());
  for (size_t i = 0; i < given.arms.size(); ++i) {
    const bool follows = given.arms[i].record.params.find("adaptive=true") != std::string::npos;
    EXPECT_EQ(given.arms[i].record.settings.contains("row_cost"), follows);
    EXPECT_EQ(given.arms[i].record.key == measured.arms[i].record.key, !follows);
  }
  EXPECT_EQ(given.arms.back().record.settings.at("row_cost"), row_cost_id(steep_rows()));
  EXPECT_NE(given.whole.key, measured.whole.key);
}

}  // namespace
}  // namespace evalrun::runners
