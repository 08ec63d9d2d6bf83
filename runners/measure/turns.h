// Measuring when it is one's turn (`run --lock-step`): two processes are loaded at once, one
// computes while the other sleeps. Who drives them says what runs when
// (runners/cli/gate/gate_lock_step.h).
#pragma once
#include <iosfwd>

namespace evalrun::runners {

class Turns {
 public:
  virtual ~Turns() = default;
  // Before anything is measured: what is to come.
  virtual void announce(int visits, int repeats) = 0;
  // Says that the work of the last turn is done and sleeps until the next one. False: no more.
  // The first turn holds the warm-up, each one after it a visit.
  virtual bool next() = 0;
};

// In lines. Written: "lock-step 1 VISITS REPEATS", then "done" after every turn. Read: "go" for
// each turn; anything else and the end of the input mean that there is none. So a process whose
// driver dies ends, too.
class LineTurns final : public Turns {
 public:
  LineTurns(std::istream& in, std::ostream& out) : in_(in), out_(out) {}
  void announce(int visits, int repeats) override;
  bool next() override;

 private:
  std::istream& in_;
  std::ostream& out_;
  bool working_ = false;
};

inline constexpr const char* kTurnsHello = "lock-step 1 ";
inline constexpr const char* kTurnsGo = "go";
inline constexpr const char* kTurnsDone = "done";

}  // namespace evalrun::runners
