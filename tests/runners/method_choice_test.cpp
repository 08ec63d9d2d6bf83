// Choices of `evalrun tune method`: the file they are kept in, which of them hold, and what plans
// make of the method name `auto`.
#include "runners/machine/method_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "methods/registration.h"
#include "runners/plan/auto_method.h"
#include "tests/runners/small_plans.h"
#include "tests/scoped_variable.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

MethodChoice choice_of(const ChoiceKey& key, const std::string& method) {
  MethodChoice choice;
  choice.key = key;
  choice.method = choice.confirmed = method;
  choice.speedup = 1.5, choice.lo = 1.25, choice.hi = 1.75;
  choice.prompts = 32;
  choice.chosen = "2026-11-27T12:00:00Z";
  return choice;
}

TEST(MethodChoices, AreStoredAndReplacedByKey) {
  const tests::TempFolder home;
  const std::string file = home.file("deep/method-choices.json");
  EXPECT_TRUE(load_choices(file).empty());
  store_choice(file, choice_of({{"model", "a"}}, "pld:k=4"));
  store_choice(file, choice_of({{"model", "b"}}, "suffix"));
  store_choice(file, choice_of({{"model", "a"}}, "ar"));
  const std::vector<MethodChoice> choices = load_choices(file);
  ASSERT_EQ(choices.size(), 2u);
  const FoundChoice found = find_choice(choices, {{"model", "a"}});
  ASSERT_TRUE(found.choice);
  EXPECT_EQ(found.choice->method, "ar");
  EXPECT_EQ(found.choice->lo, 1.25);
  EXPECT_EQ(found.choice->prompts, 32);
}

TEST(MethodChoices, ABrokenFileIsNamedAndWrittenAnew) {
  const tests::TempFolder home;
  for (const char* text : {"{", R"({"version": 9, "choices": []})", R"({"version": 1})",
                           R"({"version": 1, "choices": [{"key": {"model": 3}}]})"}) {
    const std::string file = home.write("method-choices.json", text);
    try {
      load_choices(file);
      ADD_FAILURE() << text;
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kData) << text;
      EXPECT_THAT(e.what(), HasSubstr(file));
    }
    store_choice(file, choice_of({{"model", "a"}}, "pld"));
    EXPECT_EQ(load_choices(file).size(), 1u);
  }
}

TEST(MethodChoices, WhyNoneHoldsIsSaidByTheNearest) {
  const std::vector<MethodChoice> choices = {
      choice_of({{"model", "a"}, {"build", "1"}, {"threads", "2"}}, "pld"),
      choice_of({{"model", "b"}, {"build", "2"}, {"threads", "2"}}, "suffix")};
  const FoundChoice found =
      find_choice(choices, {{"model", "b"}, {"build", "2"}, {"threads", "4"}});
  EXPECT_FALSE(found.choice);
  EXPECT_THAT(found.why, AllOf(HasSubstr("suffix"), HasSubstr("another threads (2, now 4)")));
  EXPECT_THAT(find_choice({}, {{"model", "a"}}).why, HasSubstr("nothing was chosen yet"));
}

class AutoMethod : public ::testing::Test {
 protected:
  PlanRequest asking(const std::string& task = two_prompts()) const {
    PlanRequest request = request_for(task);
    request.suite.methods = {"auto"};
    complete_suite(request.suite, "test");
    return request;
  }
  static void choose(const std::string& method) {
    store_choice(method_choices_path(),
                 choice_of(choice_key_of(request_for(two_prompts())), method));
  }
  static std::string refusal_of(const PlanRequest& request) {
    try {
      make_plan(request);
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kUsage);
      return e.what();
    }
    return "accepted";
  }
  const tests::TempFolder home_;
  const tests::ScopedVariable variable_{"EVALRUN_HOME", home_.path()};
};

TEST_F(AutoMethod, IsReplacedByTheChoice) {
  choose("pld:k=4");
  const RunPlan plan = make_plan(asking());
  EXPECT_EQ(plan.arms.back().record.label, "auto = pld:k=4");
  PlanRequest named = asking();
  named.suite.methods = {"pld:k=4"};
  complete_suite(named.suite, "test");
  const RunPlan same = make_plan(named);
  EXPECT_EQ(plan.run.key, same.run.key) << "keys hold the method, not the name auto";
  EXPECT_EQ(plan.suite.methods, same.suite.methods);
  named.suite.methods = {"pld:k=4", "auto"};
  complete_suite(named.suite, "test");
  EXPECT_EQ(make_plan(named).arms.size(), same.arms.size()) << "measured once";
}

TEST_F(AutoMethod, IsPlainDecodingWhereNothingPays) {
  choose("ar");
  const RunPlan plan = make_plan(asking());
  EXPECT_EQ(plan.arms.front().record.label, "auto = ar");
  EXPECT_EQ(plan.arms.front().record.role, "baseline");
  EXPECT_TRUE(std::none_of(plan.arms.begin(), plan.arms.end(),
                           [](const PlannedArm& arm) { return arm.record.role == "method"; }));
}

TEST_F(AutoMethod, SaysWhyNoChoiceHolds) {
  EXPECT_THAT(refusal_of(asking()),
              AllOf(HasSubstr("nothing was chosen yet"), HasSubstr("evalrun tune method --tasks")));
  choose("pld:k=4");
  PlanRequest request = asking();
  request.session.n_threads = 2;
  EXPECT_THAT(refusal_of(request), HasSubstr("another threads (1, now 2)"));
  request = asking();
  request.target = tests::tiny_model(256, "another");
  EXPECT_THAT(refusal_of(request), HasSubstr("another model"));
  EXPECT_THAT(refusal_of(asking(write_prompts("one.jsonl", {R"({"id": "a", "turns": ["1"]})"}))),
              HasSubstr("another prompts"));
  request = in_batches(asking(), {1, 2});
  EXPECT_THAT(refusal_of(request), HasSubstr("--batch 1"));
  request = asking();
  request.suite.sampling.temperature = 1;
  EXPECT_THAT(refusal_of(request), HasSubstr("--temperature 0"));
  MethodChoice other = choice_of(choice_key_of(request_for(two_prompts())), "pld:k=4");
  other.files = {{"adapter", "other weights"}};
  store_choice(method_choices_path(), other);
  EXPECT_THAT(refusal_of(asking()), HasSubstr("other weights"));
}

}  // namespace
}  // namespace evalrun::runners
