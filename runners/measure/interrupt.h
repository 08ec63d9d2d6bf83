// Ctrl-C (SIGINT) and SIGTERM: the first asks the run to finish its prompt, or a server its step;
// the second leaves at once with exit code 130. What is stored stays.
#pragma once

namespace evalrun::runners {

// Handlers are in place while an object lives; one inside another changes nothing.
class InterruptGuard {
 public:
  // `said`: a literal, written to standard error at the first signal.
  explicit InterruptGuard(const char* said =
                              "\nfinishing this prompt; press Ctrl-C again to leave at once (what "
                              "is stored stays)\n");
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool requested();
};

}  // namespace evalrun::runners
