// Measuring when it is one's turn (`run --lock-step`): two processes are loaded at once, one
// computes while the other sleeps. Who drives them says what runs when
// (runners/cli/gate/against_lock_step.cpp). Turns change every few steps: what slows a shared
// machine down comes and goes within a second, and only what is closer in time than that falls on
// both alike.
#pragma once
#include <cstdint>
#include <iosfwd>

#include "engine/base/clock.h"

namespace evalrun::runners {

class Turns {
 public:
  virtual ~Turns() = default;
  // Before anything is measured: what is to come.
  virtual void announce(int visits, int repeats) = 0;
  // Says that the visit is done. Sleeps until the next one may begin. False: there is none. The
  // first turn holds the whole warm-up, each one after it begins a visit.
  virtual bool next() = 0;
  // Before every step of a visit: sleeps where it is not this process's turn.
  virtual void before_step() = 0;
  // Processor time of the process that it takes turns with, since that began.
  virtual int64_t other_ns() const = 0;
};

// In lines. Written: "lock-step 2 VISITS REPEATS", then "pause" before a step that has no turn yet
// and "done" after a visit. Read: "go STEPS OTHER_NS", which begins a visit (STEPS = 0) or goes on
// for so many steps; anything else and the end of the input mean that there are no more turns. So a
// process whose driver dies ends, too: it finishes its visit without further pauses.
class LineTurns final : public Turns {
 public:
  LineTurns(std::istream& in, std::ostream& out, base::Clock& clock)
      : in_(in), out_(out), clock_(clock) {}
  void announce(int visits, int repeats) override;
  bool next() override;
  void before_step() override;
  int64_t other_ns() const override { return other_ns_; }
  // Stands still while before_step() sleeps: what a visit is timed with.
  base::Clock& clock() { return clock_; }

 private:
  class PausedClock final : public base::Clock {
   public:
    explicit PausedClock(base::Clock& clock) : clock_(clock) {}
    int64_t now_ns() override { return clock_.now_ns() - paused_ns_; }
    void add_pause(int64_t ns) { paused_ns_ += ns; }

   private:
    base::Clock& clock_;
    int64_t paused_ns_ = 0;
  };
  bool read_go();

  std::istream& in_;
  std::ostream& out_;
  PausedClock clock_;
  bool working_ = false;
  int64_t steps_left_ = 0, other_ns_ = 0;
};

inline constexpr const char* kTurnsHello = "lock-step 2 ";
inline constexpr const char* kTurnsGo = "go ";
inline constexpr const char* kTurnsPause = "pause";
inline constexpr const char* kTurnsDone = "done";

}  // namespace evalrun::runners
