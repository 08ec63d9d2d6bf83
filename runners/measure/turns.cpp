#include "runners/measure/turns.h"

#include <istream>
#include <ostream>
#include <string>

namespace evalrun::runners {

void LineTurns::announce(int visits, int repeats) {
  out_ << kTurnsHello << visits << ' ' << repeats << std::endl;
}

bool LineTurns::next() {
  if (working_) out_ << kTurnsDone << std::endl;
  std::string line;
  working_ = std::getline(in_, line) && line == kTurnsGo;
  return working_;
}

}  // namespace evalrun::runners
