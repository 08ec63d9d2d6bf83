// Who measured which prompt, and one clock for all machines.
#include "reports/machines/machines.h"

#include <gmock/gmock.h>

#include "reports/data/design.h"
#include "tests/temp_folder.h"

namespace evalrun::reports {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ClockScales, PlainDecodingTakesTheSameEverywhereAndAsLongInAll) {
  const std::vector<PlainTotals> plain = {{100, 1000}, {300, 9000}, {50, 0}, {0, 0}};
  const std::vector<double> scales = clock_scales(plain);
  ASSERT_EQ(scales.size(), 4u);
  EXPECT_DOUBLE_EQ(scales[0] * 10, 25) << "10,000 ns for 400 tokens";
  EXPECT_DOUBLE_EQ(scales[1] * 30, 25);
  EXPECT_DOUBLE_EQ(scales[0] * 1000 + scales[1] * 9000, 10'000);
  EXPECT_EQ(scales[2], 1) << "nothing known";
  EXPECT_EQ(scales[3], 1);
  EXPECT_THAT(clock_scales({}), IsEmpty());
  EXPECT_THAT(clock_scales(std::vector<PlainTotals>{{7, 13}}), ElementsAre(DoubleEq(1)));
}

TEST(MeasuredBy, GenerationsWithoutMachineAreTheOnlyOnes) {
  MeasuredBy one(3);
  one.add(0, 0, true), one.add(1, 7, true), one.add(1, 0, false), one.add(2, 7, true);
  EXPECT_THAT(one.machines(), ElementsAre(7));
  MeasuredBy several(5);
  several.add(0, 9, true), several.add(1, 7, true), several.add(2, 0, true);
  EXPECT_THAT(several.machines(), ElementsAre(7, 9, 0));
  EXPECT_FALSE(several.mixed());
  // A prompt is of its plain decoding's machine, whatever comes first.
  several.add(3, 7, false), several.add(3, 9, true), several.add(3, 7, true);
  EXPECT_TRUE(several.mixed());
  EXPECT_EQ(several.of(3), 9);
  EXPECT_EQ(several.of(1), 7);
}

TEST(Machines, HaveNamesOfTheirOwn) {
  const tests::TempFolder folder;
  results::ResultStore store(folder.file("a.db"));
  results::RunRecord run;
  run.key = "run";
  const int64_t id = store.add_run(run);
  const int64_t a = store.add_machine(id, {"a", "node", {{"cpu", "X"}}});
  const int64_t b = store.add_machine(id, {"b", "node", {{"cpu", "X"}, {"gpu", "G"}}});
  const int64_t c = store.add_machine(id, {"c", "", {{"cpu", "X"}}});
  const std::vector<int64_t> rows = {a, b, c, 0};
  const std::vector<MachineInfo> machines = machines_named(store, id, rows);
  std::vector<std::string> names;
  for (const MachineInfo& m : machines) names.push_back(m.name);
  EXPECT_THAT(names, ElementsAre("node", "node (2)", "machine 3", "not stored"));
  EXPECT_EQ(machines[1].key, "b");
  EXPECT_EQ(hardware_text(machines), "2 x X, G");
}

// 12 prompts of two kinds, dealt out to machines in turn.
std::vector<PromptInfo> prompts_of_machines(int machines) {
  std::vector<PromptInfo> prompts;
  for (int i = 0; i < 12; ++i) {
    PromptInfo p;
    p.id = i + 1;
    p.key = std::to_string(i), p.task = "task", p.category = i < 6 ? "a" : "b";
    p.machine = i % machines;
    prompts.push_back(p);
  }
  return prompts;
}

const std::vector<int64_t> kAllTwelve = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

TEST(MachineStrata, AreTheKindsOfEachMachine) {
  const PromptDesigns designs(prompts_of_machines(3), Scope::kSameKind);
  const Design& d = designs.of(kAllTwelve);
  EXPECT_EQ(d.units(), 12u);
  EXPECT_THAT(d.stratum, ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
  // With one prompt of a kind on a machine, kinds alone are strata.
  EXPECT_THAT(PromptDesigns(prompts_of_machines(6), Scope::kSameKind).of(kAllTwelve).stratum,
              ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1));
  // Kinds that are drawn anew are units, on whatever machines they were.
  EXPECT_EQ(PromptDesigns(prompts_of_machines(3), Scope::kNewKinds).of(kAllTwelve).units(), 2u);
  EXPECT_TRUE(PromptDesigns(prompts_of_machines(3), Scope::kFixedSet).of(kAllTwelve).empty());
}

// A machine decodes its own prompts together.
TEST(MachineStrata, BatchesAreOfOneMachine) {
  const PromptDesigns designs(prompts_of_machines(2), Scope::kSameKind);
  const Design& d = designs.of(kAllTwelve, 3);
  EXPECT_THAT(d.unit, ElementsAre(0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3));
}

}  // namespace
}  // namespace evalrun::reports
