#include "evaluators/sandbox/box_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "evaluators/sandbox/process_tree.h"
#include "evaluators/sandbox/seccomp_filter.h"

namespace evalrun::evaluators {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMemoryPoll_s = 0.03;
constexpr double kStart_s = 20;  // a box that has not started by then never will
constexpr double kGone_s = 5;    // from the death of its PID 1 to the end of bubblewrap
constexpr size_t kControlBytes = 4096;
constexpr int kFirstOwnFd = 20;  // above the numbers the child uses

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  EVALRUN_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
  const Fd low_read(ends[0]), low_write(ends[1]);
  // Out of the way of the fixed numbers, so that no dup2 in the child overwrites another.
  Pipe pipe{Fd(::fcntl(low_read.get(), F_DUPFD_CLOEXEC, kFirstOwnFd)),
            Fd(::fcntl(low_write.get(), F_DUPFD_CLOEXEC, kFirstOwnFd))};
  EVALRUN_CHECK(pipe.read.is_open() && pipe.write.is_open(), "fcntl: {}", std::strerror(errno));
  return pipe;
}

// A pipe that already holds `bytes`, so that nobody has to feed it while the program runs.
Fd filled_pipe(const std::string& bytes) {
  constexpr size_t kDefaultCapacity = 65536;
  Pipe pipe = make_pipe();
  if (bytes.size() > kDefaultCapacity)
    EVALRUN_CHECK(::fcntl(pipe.write.get(), F_SETPIPE_SZ, static_cast<int>(bytes.size())) > 0,
                  "a pipe of {} bytes: {}", bytes.size(), std::strerror(errno));
  // Near the system's limit a pipe may be given less than it asks for: an error, not a wait.
  EVALRUN_CHECK(::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK) == 0, "fcntl: {}",
                std::strerror(errno));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(pipe.write.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    EVALRUN_CHECK(n > 0, "writing to a pipe: {}", std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  return std::move(pipe.read);
}

// Read end of one of the child's pipes and what came out of it.
struct Stream {
  Fd fd;
  size_t limit;
  std::string bytes = {};
  bool over = false;  // more than the limit arrived

  void read_available() {
    std::array<char, 16384> buffer;
    while (fd.is_open() && !over) {
      const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) fd.close();
      if (n <= 0) return;
      const size_t room = limit - bytes.size();
      over = static_cast<size_t>(n) > room;
      bytes.append(buffer.data(), std::min(static_cast<size_t>(n), room));
    }
  }
};

// The words "key value" of lines that helper and bubblewrap write, once they are complete.
long long field_of(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  if (at == std::string::npos || text.find('\n', at) == std::string::npos) return -1;
  return std::strtoll(text.c_str() + at + key.size(), nullptr, 10);
}

class Supervision {
 public:
  Supervision(const BoxRequest& request, unsigned owner, bool boxed)
      : request_(request), owner_(owner), boxed_(boxed) {}

  BoxResult run(const std::vector<std::string>& command,
                const std::vector<std::string>& environment) {
    try {
      start(command, environment);
    } catch (const std::exception& e) {
      BoxResult result;
      result.problem = e.what();
      return result;
    }
    while (!ended()) {
      wait_for_events();
      for (Stream* s : streams()) s->read_available();
      look_at_clock();
      if (out_.over || err_.over) stop(BoxResult::End::kOutput);
      if (control_.over) stop(BoxResult::End::kControlFlood);
    }
    finish();
    return conclude();
  }

 private:
  std::array<Stream*, 5> streams() { return {&out_, &err_, &control_, &report_, &status_}; }

  void start(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
    const Fd input = filled_pipe(request_.input);
    const Fd filter = filled_pipe(boxed_ ? seccomp_filter() : "");
    const Fd passwd = filled_pipe(
        "root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/tmp:/usr/sbin/"
        "nologin\n");
    Pipe out = make_pipe(), err = make_pipe(), control = make_pipe(), report = make_pipe(),
         status = make_pipe();
    // Java opens /dev/fd/3 by name, which asks for the owner of the pipe.
    if (owner_ != 0) EVALRUN_CHECK(::fchown(control.write.get(), owner_, owner_) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    const std::array<int, 8> wanted = {input.get(),         out.write.get(),    err.write.get(),
                                       control.write.get(), report.write.get(), filter.get(),
                                       status.write.get(),  passwd.get()};
    for (size_t i = 0; i < wanted.size(); ++i)
      posix_spawn_file_actions_adddup2(&actions, wanted[i], static_cast<int>(i));
    posix_spawn_file_actions_addclosefrom_np(&actions, static_cast<int>(wanted.size()));
    sigset_t none, defaults;
    sigemptyset(&none);
    sigfillset(&defaults);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    // A group of its own: Ctrl-C is for us, we end the box ourselves.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::vector<char*> argv, envp;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    for (const std::string& word : environment) envp.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const int code = ::posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    EVALRUN_CHECK(code == 0, "cannot start {}: {}", command[0], std::strerror(code));
    out_.fd = std::move(out.read);
    err_.fd = std::move(err.read);
    control_.fd = std::move(control.read);
    report_.fd = std::move(report.read);
    status_.fd = std::move(status.read);
    for (Stream* s : streams()) ::fcntl(s->fd.get(), F_SETFL, O_NONBLOCK);
    begun_ = Clock::now();
  }

  bool ended() const {
    return stopped_ || report_.bytes.find("end ") != std::string::npos || !report_.fd.is_open();
  }

  double seconds_since(Clock::time_point t) const {
    return std::chrono::duration<double>(Clock::now() - t).count();
  }

  void wait_for_events() {
    std::array<pollfd, 5> fds{};
    nfds_t n = 0;
    for (Stream* s : streams())
      if (s->fd.is_open()) fds[n++] = {s->fd.get(), POLLIN, 0};
    const double rest =
        started_ ? deadline_s_ - seconds_since(program_begun_) : kStart_s - seconds_since(begun_);
    const double wait = std::clamp(rest, 0.0, kMemoryPoll_s);
    ::poll(fds.data(), n, static_cast<int>(std::ceil(wait * 1e3)));
  }

  void look_at_clock() {
    if (!started_) {
      if (field_of(report_.bytes, "start ") >= 0) {
        started_ = true;
        program_begun_ = last_poll_ = Clock::now();
        deadline_s_ = request_.compiles_first ? request_.compile_wall_s : request_.limits.wall_s;
      } else if (seconds_since(begun_) > kStart_s) {
        problem_ = fmt::format("the box did not start within {} s", kStart_s);
        stop(BoxResult::End::kBroken);
      }
      return;
    }
    const double now = seconds_since(program_begun_);
    if (request_.compiles_first && compiled_s_ == 0 && !control_.bytes.empty()) {
      compiled_s_ = now;
      deadline_s_ = now + request_.limits.wall_s;
    }
    if (ended()) return;
    if (now >= deadline_s_) return stop(BoxResult::End::kTimeout);
    if (seconds_since(last_poll_) < kMemoryPoll_s) return;
    last_poll_ = Clock::now();
    const int64_t rss = tree_rss(root_of_tree());
    peak_rss_ = std::max(peak_rss_, rss);
    if (request_.limits.tree_memory > 0 && rss > request_.limits.tree_memory)
      stop(BoxResult::End::kMemory);
  }

  // PID 1 of the box as we see it; unboxed, the program itself.
  pid_t root_of_tree() const {
    return static_cast<pid_t>(boxed_ ? field_of(status_.bytes, "\"child-pid\": ")
                                     : field_of(report_.bytes, "start "));
  }

  void stop(BoxResult::End why) {
    if (stopped_) return;
    stopped_ = true;
    end_ = why;
    stopped_after_s_ = started_ ? seconds_since(program_begun_) : 0;
  }

  // First PID 1 of the box, which takes all others with it; bubblewrap then ends by itself.
  // Killing bubblewrap first would leave the box to init, out of our sight.
  void finish() {
    if (stopped_ || report_.bytes.find("end ") == std::string::npos) {
      const pid_t root = root_of_tree();
      if (root > 0)
        ::kill(boxed_ ? root : -root, SIGKILL);
      else
        ::kill(pid_, SIGKILL);
    }
    int code = 0;
    const Clock::time_point from = Clock::now();
    for (bool killed = false; ::waitpid(pid_, &code, WNOHANG) == 0;) {
      if (!killed && seconds_since(from) > kGone_s) {
        ::kill(pid_, SIGKILL);
        killed = true;
      }
      if (seconds_since(from) > 2 * kGone_s) {
        problem_ = "bubblewrap does not end";
        end_ = BoxResult::End::kBroken;
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    for (Stream* s : streams()) s->read_available();
  }

  BoxResult conclude() {
    BoxResult result;
    result.out = std::move(out_.bytes);
    result.err = std::move(err_.bytes);
    result.control = std::move(control_.bytes);
    result.compile_ms = compiled_s_ * 1e3;
    result.peak_rss = peak_rss_;
    result.end = end_;
    result.problem = problem_;
    if (stopped_) {
      result.wall_ms = stopped_after_s_ * 1e3;
      return result;
    }
    if (!problem_.empty()) return result;
    int status = 0;
    long long cpu_us = 0, rss_kb = 0, wall_us = 0;
    const size_t at = report_.bytes.find("end ");
    if (at == std::string::npos || std::sscanf(report_.bytes.c_str() + at, "end %d %lld %lld %lld",
                                               &status, &cpu_us, &rss_kb, &wall_us) != 4) {
      result.end = BoxResult::End::kBroken;
      const std::string said(base::trim(std::string_view(result.err).substr(0, 400)));
      result.problem = said.empty() ? "the box ended without a report" : said;
      return result;
    }
    if (const long long error = field_of(report_.bytes, "exec "); error > 0) {
      result.end = BoxResult::End::kBroken;
      result.problem = fmt::format("cannot run {}: {}", request_.command.front(),
                                   std::strerror(static_cast<int>(error)));
      return result;
    }
    // What arrived together with the report was not yet looked at.
    if (out_.over || err_.over || control_.over) {
      result.end = control_.over ? BoxResult::End::kControlFlood : BoxResult::End::kOutput;
    } else if (WIFSIGNALED(status)) {
      result.end = BoxResult::End::kSignalled;
      result.signal = WTERMSIG(status);
    } else {
      result.end = BoxResult::End::kExited;
      result.exit_code = WEXITSTATUS(status);
    }
    result.cpu_ms = static_cast<double>(cpu_us) * 1e-3;
    result.wall_ms = static_cast<double>(wall_us) * 1e-3;
    // We may have been late to see the byte, on a busy machine even later than the program's end.
    result.compile_ms = std::min(result.compile_ms, result.wall_ms);
    result.peak_rss = std::max<int64_t>(result.peak_rss, rss_kb * 1024);
    return result;
  }

  const BoxRequest& request_;
  unsigned owner_;
  bool boxed_;
  pid_t pid_ = -1;
  Stream out_{{}, request_.limits.output_bytes}, err_{{}, request_.limits.output_bytes},
      control_{{}, kControlBytes}, report_{{}, kControlBytes}, status_{{}, kControlBytes};
  Clock::time_point begun_, program_begun_, last_poll_;
  bool started_ = false, stopped_ = false;
  double deadline_s_ = 0, stopped_after_s_ = 0, compiled_s_ = 0;
  int64_t peak_rss_ = 0;
  BoxResult::End end_ = BoxResult::End::kBroken;
  std::string problem_;
};

}  // namespace

BoxResult supervise(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment, const BoxRequest& request,
                    unsigned owner, bool boxed) {
  return Supervision(request, owner, boxed).run(command, environment);
}

}  // namespace evalrun::evaluators
