#include "runners/measure/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

volatile std::sig_atomic_t g_signals = 0;
const char* g_said = "";
struct sigaction g_old_int, g_old_term;
int g_guards = 0;

extern "C" void on_signal(int) {
  // Leaving in the middle is safe: SQLite's journal undoes a transaction that was not committed.
  if (g_signals != 0) ::_exit(static_cast<int>(base::ExitCode::kInterrupted));
  g_signals = 1;
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, g_said, std::strlen(g_said));
}

}  // namespace

InterruptGuard::InterruptGuard(const char* said) {
  if (g_guards++ > 0) return;
  g_said = said;
  g_signals = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &g_old_int);
  sigaction(SIGTERM, &action, &g_old_term);
}

InterruptGuard::~InterruptGuard() {
  if (--g_guards > 0) return;
  sigaction(SIGINT, &g_old_int, nullptr);
  sigaction(SIGTERM, &g_old_term, nullptr);
}

bool InterruptGuard::requested() { return g_signals != 0; }

}  // namespace evalrun::runners
