#include "evaluators/sandbox/seccomp_filter.h"

#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "engine/base/error.h"

namespace evalrun::evaluators {
namespace {

// Names a kernel or libseccomp does not know are skipped: what does not exist needs no refusal.
constexpr std::array kRefused = {
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
    // file systems and namespaces
    "mount", "umount", "umount2", "pivot_root", "chroot", "setns", "unshare", "fsopen", "fsconfig",
    "fsmount", "fspick", "move_mount", "open_tree", "mount_setattr", "mknod", "mknodat",
    "open_by_handle_at", "name_to_handle_at", "fanotify_init", "quotactl", "quotactl_fd",
    // kernel
    "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "init_module",
    "finit_module", "delete_module", "kexec_load", "kexec_file_load", "swapon", "swapoff", "reboot",
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "sethostname",
    "setdomainname", "syslog", "acct", "iopl", "ioperm", "modify_ldt", "personality", "vhangup",
    "lookup_dcookie", "io_uring_setup", "io_uring_enter", "io_uring_register",
    // memory that neither a limit nor the resident size of a process shows, and its placement
    "memfd_create", "memfd_secret", "shmget", "shmat", "shmctl", "msgget", "semget", "mq_open",
    "mbind", "set_mempolicy", "set_mempolicy_home_node", "get_mempolicy", "migrate_pages",
    "move_pages"};

constexpr unsigned long kTiocsti = 0x5412, kTioclinux = 0x541C;  // put words into a terminal

std::string build_filter() {
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> context(seccomp_init(SCMP_ACT_ALLOW),
                                                                 &seccomp_release);
  EVALRUN_CHECK(context != nullptr, "seccomp_init failed");
  const auto must = [](int code) { EVALRUN_CHECK(code == 0, "libseccomp: error {}", -code); };
  must(seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS));
  const auto refuse = [&](const char* name, int error, auto... condition) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return;
    must(seccomp_rule_add(context.get(), SCMP_ACT_ERRNO(static_cast<uint16_t>(error)), number,
                          sizeof...(condition), condition...));
  };
  for (const char* name : kRefused) refuse(name, EPERM);
  for (const unsigned flag :
       {unsigned{CLONE_NEWUSER}, unsigned{CLONE_NEWNS}, unsigned{CLONE_NEWPID},
        unsigned{CLONE_NEWNET}, unsigned{CLONE_NEWIPC}, unsigned{CLONE_NEWUTS},
        unsigned{CLONE_NEWCGROUP}})
    refuse("clone", EPERM, SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
  // Its flags lie in memory, where a filter cannot look; libc then falls back to clone.
  refuse("clone3", ENOSYS);
  // The kernel reads 32 bits of the request: compare those, whatever stands above them.
  for (const unsigned long request : {kTiocsti, kTioclinux})
    refuse("ioctl", EPERM, SCMP_A1(SCMP_CMP_MASKED_EQ, 0xFFFFFFFFul, request));
  // Limits of others: a processor time of 0 would end PID 1, which has the same user.
  refuse("prlimit64", EPERM, SCMP_A0(SCMP_CMP_NE, 0));
  refuse("socket", EAFNOSUPPORT, SCMP_A0(SCMP_CMP_NE, AF_UNIX));

  const int fd = ::memfd_create("evalrun-filter", MFD_CLOEXEC);
  EVALRUN_CHECK(fd >= 0, "memfd_create: error {}", errno);
  must(seccomp_export_bpf(context.get(), fd));
  std::string bytes(static_cast<size_t>(::lseek(fd, 0, SEEK_END)), '\0');
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  ::close(fd);
  EVALRUN_CHECK(got == static_cast<ssize_t>(bytes.size()) && !bytes.empty());
  return bytes;
}

}  // namespace

const std::string& seccomp_filter() {
  static const std::string kFilter = build_filter();
  return kFilter;
}

}  // namespace evalrun::evaluators
