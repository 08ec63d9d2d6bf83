#include "reports/data/arm_tasks.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::reports {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Close together, far apart, in any order, at the ends of what there is.
TEST(IdNumbers, AreThePlacesInTheList) {
  const std::vector<std::vector<int64_t>> lists = {{1, 2, 3, 4},         {7},
                                                   {5, 6, 9, 10, 12},    {12, 3, 4, 11, 10},
                                                   {1, 1'000'000, 5000}, {-3, 0, 2},
                                                   {kLeast, 0, kMost},   {kMost - 1, kMost},
                                                   {kLeast, kLeast + 1}, {kMost, kLeast}};
  for (const std::vector<int64_t>& ids : lists) {
    const IdNumbers numbers(ids);
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(numbers.of(ids[i]), i) << ids[i];
    for (const int64_t id : {int64_t{-7}, int64_t{8}, int64_t{13}, int64_t{4000}, kLeast + 7})
      EXPECT_THROW((void)numbers.of(id), base::InternalError) << id;
  }
  EXPECT_THROW((void)IdNumbers(std::vector<int64_t>{}).of(0), base::InternalError);
}

TEST(ArmTasks, NumberPairsOfArmsAndDataSets) {
  std::vector<ArmInfo> arms(2);
  arms[0].id = 4, arms[1].id = 900;
  std::vector<PromptInfo> prompts(3);
  prompts[0].id = 10, prompts[0].task = "chat";
  prompts[1].id = 11, prompts[1].task = "code";
  prompts[2].id = 12, prompts[2].task = "chat";
  const ArmTasks places(arms, prompts);
  EXPECT_EQ(places.size(), 4u);
  EXPECT_EQ(places.of(4, 10), places.of(4, 12));
  EXPECT_EQ(places.of_arm(900), (std::vector<size_t>{2, 3}));
  EXPECT_EQ(places.arm_number(900), 1u);
  std::vector<int> values(4);
  values[places.of(900, 11)] = 7, values[places.of(4, 12)] = 5;
  const std::map<ArmTask, int> named = {{{4, "chat"}, 5}, {{900, "code"}, 7}};
  EXPECT_EQ(places.by_name(values), named) << "less zeros";
  EXPECT_THROW((void)places.of(5, 10), base::InternalError);
  EXPECT_THROW((void)places.of(4, 13), base::InternalError);
}

}  // namespace
}  // namespace evalrun::reports
