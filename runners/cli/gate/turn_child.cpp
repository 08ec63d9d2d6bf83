#include "runners/cli/gate/turn_child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "runners/cli/command_line.h"
#include "runners/cli/gate/other_program.h"
#include "runners/cluster/command_output.h"
#include "runners/measure/interrupt.h"
#include "runners/measure/turns.h"

extern char** environ;

namespace evalrun::cli {
namespace {

using base::ExitCode;

constexpr double kFarewellS = 2;  // for a process that is no longer needed to leave by itself

double now_s() {
  base::SteadyClock clock;
  return 1e-9 * static_cast<double>(clock.now_ns());
}

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

void stop_if_told() {
  if (runners::InterruptGuard::requested())
    throw base::Error(ExitCode::kInterrupted, "interrupted: the check has no verdict",
                      "start it again; it measures anew");
}

// Neither end of a pipe reaches the other child: it would keep it open when we die.
void make_pipe(int ends[2]) {
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw base::Error(ExitCode::kEnvironment, fmt::format("no pipe: {}", std::strerror(errno)));
}

// 0, or why it could not be started.
int spawn(const std::vector<std::string>& words, const std::string& log, int in, int out,
          pid_t& pid) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);  // we ignore it
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error =
      ::posix_spawnp(&pid, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

TurnChild::TurnChild(std::string name, std::vector<std::string> words, std::string log,
                     double patience_s)
    : name_(std::move(name)),
      words_(std::move(words)),
      log_(std::move(log)),
      patience_s_(patience_s) {
  ::signal(SIGPIPE, SIG_IGN);  // a child that has ended is noticed by reading
  int in[2], out[2];
  make_pipe(in);
  make_pipe(out);
  to_ = in[1];
  from_ = out[0];
  const int error = spawn(words_, log_, in[0], out[1], pid_);
  ::close(in[0]);
  ::close(out[1]);
  if (error == 0) return;
  close_pipes();
  ended_ = true;
  throw base::usage_error(
      fmt::format("--against: '{}' cannot be started: {}", words_.front(), std::strerror(error)),
      "name the evalrun of the other build");
}

TurnChild::~TurnChild() {
  close_pipes();  // the end of its input: it leaves after what it is doing
  if (ended()) return;
  ::kill(pid_, SIGTERM);
  for (const double end = now_s() + kFarewellS; !ended() && now_s() < end;) nap();
  if (!ended()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
  }
}

void TurnChild::close_pipes() {
  for (int* end : {&to_, &from_}) {
    if (*end >= 0) ::close(*end);
    *end = -1;
  }
}

bool TurnChild::ended() {
  if (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return ended_;
}

std::string TurnChild::when() const {
  if (turns_ == 0) return fmt::format(", {}, before it was ready", name_);
  if (turns_ == 1) return fmt::format(", {}, while warming up", name_);
  return fmt::format(", {}, in visit {} of {}", name_, turns_ - 1, visits_);
}

std::string TurnChild::read_line() {
  const double end = now_s() + patience_s_;
  while (true) {
    if (const size_t at = read_.find('\n'); at != std::string::npos) {
      const std::string line = read_.substr(0, at);
      read_.erase(0, at + 1);
      return line;
    }
    stop_if_told();
    if (now_s() > end)
      throw base::data_error(
          words_.front(), shell_line(words_),
          fmt::format("said nothing for {:.0f} s{}", patience_s_, when()),
          "run it by hand without --lock-step to see where it hangs; its processes were ended");
    struct pollfd ready = {from_, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;  // or a signal
    char buffer[512];
    const ssize_t n = ::read(from_, buffer, sizeof buffer);
    if (n == 0) return "";
    if (n > 0) read_.append(buffer, static_cast<size_t>(n));
  }
}

void TurnChild::write_line(const std::string& line) {
  const std::string text = line + "\n";
  // Shorter than what a pipe holds: written whole or not at all. A reader that has ended shows when
  // its answer is read.
  [[maybe_unused]] const ssize_t n = ::write(to_, text.data(), text.size());
}

int TurnChild::wait_for_end() {
  for (const double end = now_s() + patience_s_; !ended(); nap()) {
    stop_if_told();
    if (now_s() > end)
      throw base::data_error(words_.front(), shell_line(words_),
                             fmt::format("did not end within {:.0f} s{}", patience_s_, when()),
                             "run it by hand without --lock-step to see where it hangs");
  }
  return runners::exit_code_of_status(status_);
}

bool TurnChild::ready() {
  const std::string line = read_line();
  const std::string hello = runners::kTurnsHello;
  // A build that takes turns in another way: as one that cannot.
  if (!line.starts_with(hello) && line.starts_with("lock-step ")) return false;
  if (line.starts_with(hello)) {
    const std::vector<std::string> numbers = base::split(line.substr(hello.size()), ' ');
    if (numbers.size() == 2) {
      visits_ = std::atoi(numbers[0].c_str());
      repeats_ = std::max(1, std::atoi(numbers[1].c_str()));
      return true;
    }
  }
  if (!line.empty())
    throw base::data_error(words_.front(), shell_line(words_),
                           fmt::format("is no evalrun that can be told when to measure: said '{}'",
                                       line.substr(0, 80)),
                           "name the evalrun of the other build");
  const int code = wait_for_end();
  // A build from before lock step names the option that it does not know.
  if (code == static_cast<int>(ExitCode::kUsage) &&
      base::read_file(log_).find("--lock-step") != std::string::npos)
    return false;
  require_measured(words_, code, log_, when());
  throw base::data_error(words_.front(), shell_line(words_),
                         fmt::format("ended without a word{}", when()), "run it by hand");
}

bool TurnChild::begin(int64_t other_ns) {
  ++turns_;
  return go_on(0, other_ns);
}

int64_t TurnChild::processor_ns() const {
  clockid_t clock;
  timespec t;
  if (ended_ || ::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &t) != 0)
    return 0;
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

bool TurnChild::go_on(int steps, int64_t other_ns) {
  write_line(fmt::format("{}{} {}", runners::kTurnsGo, steps, other_ns));
  const std::string line = read_line();
  if (line == runners::kTurnsDone) return true;
  if (line == runners::kTurnsPause) return false;
  if (line.empty()) require_measured(words_, wait_for_end(), log_, when());
  throw base::data_error(words_.front(), shell_line(words_),
                         fmt::format("answered '{}'{}", line.substr(0, 80), when()),
                         "run it by hand");
}

void TurnChild::finish() {
  write_line("end");
  require_measured(words_, wait_for_end(), log_, when());
}

}  // namespace evalrun::cli
