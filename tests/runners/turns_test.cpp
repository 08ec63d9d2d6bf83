// A process that measures when it is told to: the lines it reads and writes.
#include "runners/measure/turns.h"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/base/error.h"
#include "runners/plan/planted_faults.h"

namespace evalrun::runners {
namespace {

TEST(LineTurns, EachTurnIsAskedForAndAnswered) {
  std::istringstream in("go\ngo\nend\n");
  std::ostringstream out;
  LineTurns turns(in, out);
  turns.announce(6, 3);
  EXPECT_EQ(out.str(), "lock-step 1 6 3\n");
  EXPECT_TRUE(turns.next());
  EXPECT_EQ(out.str(), "lock-step 1 6 3\n") << "nothing is done yet";
  EXPECT_TRUE(turns.next());
  EXPECT_EQ(out.str(), "lock-step 1 6 3\ndone\n");
  EXPECT_FALSE(turns.next());
  EXPECT_EQ(out.str(), "lock-step 1 6 3\ndone\ndone\n");
}

TEST(LineTurns, ADriverThatDiedGivesNoTurn) {
  std::istringstream in("go\n");
  std::ostringstream out;
  LineTurns turns(in, out);
  EXPECT_TRUE(turns.next());
  EXPECT_FALSE(turns.next());
  EXPECT_FALSE(turns.next());
  EXPECT_EQ(out.str(), "done\n");
}

TEST(PlantedFaults, NameTheArmsThatGetThem) {
  using Map = std::map<std::string, std::string>;
  Suite suite;
  suite.methods = {"ar", "pld"};
  suite.aa = true;
  EXPECT_EQ(planted_faults(suite, "miscount"), (Map{{"pld", "miscount"}}));
  EXPECT_EQ(planted_faults(suite, "ar-slow:7%"), (Map{{"ar", "slow:7%"}, {"ar (A/A)", "slow:7%"}}));
  suite.aa = false;
  EXPECT_EQ(planted_faults(suite, "all-slow:7%"), (Map{{"ar", "slow:7%"}, {"pld", "slow:7%"}}));
  suite.methods = {"ar"};
  EXPECT_THROW(planted_faults(suite, "slow:7%"), base::Error);
  EXPECT_NO_THROW(check_fault_name("all-slow:2%"));
  EXPECT_THROW(check_fault_name("al-slow:2%"), base::Error);
}

}  // namespace
}  // namespace evalrun::runners
