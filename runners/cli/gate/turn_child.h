// One process of a build that measures when it is told to: `evalrun run ... --lock-step`
// (runners/measure/turns.h).
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace evalrun::cli {

class TurnChild {
 public:
  // Starts words.front(), its messages go to `log`. `name` says in errors whose it is. Throws
  // usage_error where it cannot be started.
  TurnChild(std::string name, std::vector<std::string> words, std::string log, double patience_s);
  ~TurnChild();  // ends it
  TurnChild(const TurnChild&) = delete;
  TurnChild& operator=(const TurnChild&) = delete;

  // Until it is ready. False where the program does not know lock step. As all below, throws what
  // require_measured() throws where it ends, data_error where it is silent for `patience_s`, and
  // kInterrupted when told to stop.
  bool ready();
  int visits() const { return visits_; }
  int repeats() const { return repeats_; }
  // Begins the next turn, the warm-up first, then a visit each. True: it is done. False: a step of
  // it waits to be told. `other_ns`: processor time of the process it takes turns with.
  bool begin(int64_t other_ns);
  // Goes on for so many steps. True as above.
  bool go_on(int steps, int64_t other_ns);
  int64_t processor_ns() const;  // of the process, since it began; 0 where it cannot be read
  // After the last visit: until it has ended.
  void finish();

 private:
  std::string when() const;
  std::string read_line();  // "" at the end
  void write_line(const std::string& line);
  bool ended();  // without waiting; status_ then tells
  int wait_for_end();
  void close_pipes();

  std::string name_;
  std::vector<std::string> words_;
  std::string log_;
  double patience_s_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;  // pipes
  std::string read_;         // what was read beyond a line
  int visits_ = 0, repeats_ = 1, turns_ = 0;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace evalrun::cli
