// A process that measures when it is told to: the lines it reads and writes.
#include "runners/measure/turns.h"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "runners/plan/planted_faults.h"

namespace evalrun::runners {
namespace {

// Each reading is a second after the one before.
class TickingClock final : public base::Clock {
 public:
  int64_t now_ns() override { return now_ += 1'000'000'000; }

 private:
  int64_t now_ = 0;
};

TEST(LineTurns, EachTurnIsAskedForAndAnswered) {
  std::istringstream in("go 0 0\ngo 0 70\nend\n");
  std::ostringstream out;
  TickingClock clock;
  LineTurns turns(in, out, clock);
  turns.announce(6, 3);
  EXPECT_EQ(out.str(), "lock-step 2 6 3\n");
  EXPECT_TRUE(turns.next());
  EXPECT_EQ(out.str(), "lock-step 2 6 3\n") << "nothing is done yet";
  EXPECT_TRUE(turns.next());
  EXPECT_EQ(turns.other_ns(), 70);
  EXPECT_EQ(out.str(), "lock-step 2 6 3\ndone\n");
  EXPECT_FALSE(turns.next());
  EXPECT_EQ(out.str(), "lock-step 2 6 3\ndone\ndone\n");
}

TEST(LineTurns, StepsAreGivenAFewAtATime) {
  std::istringstream in("go 0 0\ngo 2 5\ngo 1 9\ngo 0 11\n");
  std::ostringstream out;
  TickingClock clock;
  LineTurns turns(in, out, clock);
  ASSERT_TRUE(turns.next());
  turns.before_step();
  EXPECT_EQ(out.str(), "pause\n");
  EXPECT_EQ(turns.other_ns(), 5);
  turns.before_step();
  EXPECT_EQ(out.str(), "pause\n") << "the second step of the turn";
  turns.before_step();
  EXPECT_EQ(out.str(), "pause\npause\n");
  ASSERT_TRUE(turns.next());
  EXPECT_EQ(out.str(), "pause\npause\ndone\n");
  EXPECT_EQ(turns.other_ns(), 11);
}

TEST(LineTurns, TheClockStandsStillInAPause) {
  std::istringstream in("go 0 0\ngo 1 0\n");
  std::ostringstream out;
  TickingClock clock;
  LineTurns turns(in, out, clock);
  ASSERT_TRUE(turns.next());
  const int64_t before = turns.clock().now_ns();
  turns.before_step();  // reads the clock twice
  EXPECT_EQ(turns.clock().now_ns() - before, 2'000'000'000);
  EXPECT_EQ(clock.now_ns() - before, 4'000'000'000);
}

TEST(LineTurns, ADriverThatDiedGivesNoTurn) {
  std::istringstream in("go 0 0\n");
  std::ostringstream out;
  TickingClock clock;
  LineTurns turns(in, out, clock);
  EXPECT_TRUE(turns.next());
  turns.before_step();
  turns.before_step();  // the visit ends without further pauses
  EXPECT_EQ(out.str(), "pause\n");
  EXPECT_FALSE(turns.next());
  EXPECT_FALSE(turns.next());
  for (const char* wrong : {"go", "go 1", "go -1 0", "stop 1 0", "went 0 0"}) {
    std::istringstream words(wrong);
    EXPECT_FALSE(LineTurns(words, out, clock).next()) << wrong;
  }
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
