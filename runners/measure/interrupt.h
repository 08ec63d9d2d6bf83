// Ctrl-C (SIGINT) and SIGTERM: the first asks the run to finish its prompt, the second leaves at
// once with exit code 130. What is stored stays.
#pragma once

namespace evalrun::runners {

// Handlers are in place while an object lives; one inside another changes nothing.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool requested();
};

}  // namespace evalrun::runners
