#include "runners/measure/turns.h"

#include <istream>
#include <ostream>
#include <sstream>
#include <string>

namespace evalrun::runners {

void LineTurns::announce(int visits, int repeats) {
  out_ << kTurnsHello << visits << ' ' << repeats << std::endl;
}

bool LineTurns::read_go() {
  std::string line, word;
  working_ = false;
  if (!std::getline(in_, line)) return false;
  std::istringstream words(line);
  int64_t steps = 0, other_ns = 0;
  if (!(words >> word >> steps >> other_ns) || word + ' ' != kTurnsGo || steps < 0) return false;
  steps_left_ = steps, other_ns_ = other_ns;
  return working_ = true;
}

bool LineTurns::next() {
  if (working_) out_ << kTurnsDone << std::endl;
  return read_go();
}

void LineTurns::before_step() {
  if (!working_) return;
  if (steps_left_ == 0) {
    const int64_t begin = clock_.now_ns();
    out_ << kTurnsPause << std::endl;
    read_go();
    clock_.add_pause(clock_.now_ns() - begin);
    if (!working_) return;
  }
  --steps_left_;
}

}  // namespace evalrun::runners
