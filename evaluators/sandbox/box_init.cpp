// evalrun-box-init: the small static program on both sides of the sandbox's wall.
//
//   evalrun-box-init drop UID [SOURCE TARGET]... -- COMMAND...
//     Outside, only when evalrun runs as root: binds folders onto places that UID can reach (in a
//     mount namespace of its own, so nobody else sees them), becomes UID, runs bubblewrap.
//   evalrun-box-init box UID CPU_S AS DATA NPROC FSIZE NOFILE STACK -- PROGRAM...
//     Inside, as PID 1: sets limits, runs PROGRAM, reports how it ended. 0 = no limit; UID 0 =
//     stay.
//
// Descriptors: 3 is the program's control channel, 4 takes our report, one line each:
//   start PID | exec ERRNO | end WAIT_STATUS CPU_US MAXRSS_KB WALL_US
// PID 1 cannot be killed or traced from inside, is not dumpable (no /proc/1/mem), and takes
// everything with it when it ends. No allocation, no C++ library: it starts in well under 1 ms.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr int kReport = 4;

[[noreturn]] void die(const char* what) {
  dprintf(2, "evalrun-box-init: %s: %s\n", what, strerror(errno));
  _exit(125);
}

void become(unsigned uid) {
  // As root without a user namespace the bounding set must go first, while we still may.
  for (int cap = 0; cap <= CAP_LAST_CAP; ++cap) prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
  if (setgroups(0, nullptr) != 0) die("setgroups");
  if (setresgid(uid, uid, uid) != 0) die("setresgid");
  if (setresuid(uid, uid, uid) != 0) die("setresuid");
  __user_cap_header_struct version = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};  // the inheritable ones survive a change of user
  if (syscall(SYS_capset, &version, none) != 0) die("capset");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no_new_privs");
}

void limit(int resource, const char* text) {
  const unsigned long long value = strtoull(text, nullptr, 10);
  if (value == 0 && resource != RLIMIT_CORE) return;
  // CPU: a signal first, then SIGKILL a second later.
  const rlimit both = {value, resource == RLIMIT_CPU ? value + 1 : value};
  if (setrlimit(static_cast<__rlimit_resource_t>(resource), &both) != 0) die("setrlimit");
}

// Waits for `child`, and reaps every orphan that PID 1 inherits meanwhile; false when
// nobody reads our report any more: evalrun is gone, and so must be the box. (The signal that a
// parent's death sends does not help: it is lost when the user id changes.)
bool wait_for(pid_t child, int signals, int* status) {
  while (true) {
    int code = 0;
    const pid_t ended = waitpid(-1, &code, WNOHANG);
    if (ended == child) {
      *status = code;
      return true;
    }
    if (ended > 0) continue;
    if (ended < 0 && errno != EINTR) _exit(125);
    pollfd watched[2] = {{signals, POLLIN, 0}, {kReport, 0, 0}};
    poll(watched, 2, -1);
    if ((watched[1].revents & POLLERR) != 0) return false;
    signalfd_siginfo taken;
    if (watched[0].revents != 0 && read(signals, &taken, sizeof taken) < 0 && errno != EINTR)
      _exit(125);
  }
}

long long microseconds(const timeval& t) { return t.tv_sec * 1000000LL + t.tv_usec; }
long long now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

int drop(int argc, char** argv) {
  const auto uid = static_cast<unsigned>(strtoul(argv[0], nullptr, 10));
  int i = 1;
  if (strcmp(argv[i], "--") != 0) {
    if (unshare(CLONE_NEWNS) != 0) die("a mount namespace of our own");
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) die("private mounts");
  }
  for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2)
    if (mount(argv[i], argv[i + 1], nullptr, MS_BIND, nullptr) != 0) die(argv[i]);
  become(uid);
  execv(argv[i + 1], argv + i + 1);
  die(argv[i + 1]);
}

[[noreturn]] void run_program(char** limits, char** program) {
  const int resources[] = {RLIMIT_CPU,   RLIMIT_AS,     RLIMIT_DATA, RLIMIT_NPROC,
                           RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_STACK};
  for (int i = 0; i < 7; ++i) limit(resources[i], limits[i]);
  limit(RLIMIT_CORE, "0");
  setsid();
  fcntl(kReport, F_SETFD, FD_CLOEXEC);
  syscall(SYS_close_range, kReport + 1, ~0U, 0);
  execv(program[0], program);
  dprintf(kReport, "exec %d\n", errno);
  _exit(127);
}

int box(char** argv) {
  const auto uid = static_cast<unsigned>(strtoul(argv[0], nullptr, 10));
  if (uid != 0) become(uid);
  const bool is_pid_1 = getpid() == 1;
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) die("dumpable");
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);
  if (signals < 0) die("signalfd");
  const long long start = now_us();
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    sigprocmask(SIG_UNBLOCK, &ends, nullptr);
    run_program(argv + 1, argv + 9);
  }
  dprintf(kReport, "start %d\n", child);
  for (int fd = 0; fd <= 3; ++fd) close(fd);  // their ends belong to the program alone
  int status = 0;
  const bool wanted = wait_for(child, signals, &status);
  const long long wall = now_us() - start;
  // Never -1 outside a PID namespace: that would be every process of this user.
  kill(is_pid_1 ? -1 : -child, SIGKILL);
  if (!wanted) _exit(125);
  while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
  rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  dprintf(kReport, "end %d %lld %ld %lld\n", status,
          microseconds(used.ru_utime) + microseconds(used.ru_stime), used.ru_maxrss, wall);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 5 && strcmp(argv[1], "drop") == 0) return drop(argc - 2, argv + 2);
  if (argc >= 12 && strcmp(argv[1], "box") == 0) return box(argv + 2);
  dprintf(2, "evalrun-box-init: started by evalrun, not by hand\n");
  return 125;
}
