#include "runners/cluster/device_processes.h"

#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "runners/cluster/command_output.h"
#include "runners/cluster/socket_messages.h"

extern char** environ;

namespace evalrun::runners {
namespace {

volatile std::sig_atomic_t g_told_devices = 0;
extern "C" void on_device_signal(int) { g_told_devices = g_told_devices + 1; }

// "0-3" or "5".
std::vector<int> parse_core_range(const std::string& name, const std::string& text) {
  const std::vector<std::string> ends = base::split(text, '-');
  const auto first = base::parse_number<int>(ends.front());
  const auto last = base::parse_number<int>(ends.back());
  if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first)
    throw base::usage_error(fmt::format("--devices: '{}' is no device", name),
                            "cuda:0, cpu, or cpu with cores: cpu:0-3");
  std::vector<int> cores;
  for (int core = *first; core <= *last; ++core) cores.push_back(core);
  return cores;
}

void set_affinity(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

struct DeviceProcess {
  pid_t pid = -1;
  std::optional<int> code;
};

pid_t start_process(const std::vector<std::string>& words, const std::vector<int>& descriptors) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // The same number: the descriptor stays open in this process alone.
  for (const int fd : descriptors) posix_spawn_file_actions_adddup2(&files, fd, fd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGINT);  // ignored here: a terminal sends it to all
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int reason =
      ::posix_spawn(&pid, "/proc/self/exe", &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (reason != 0)
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("no process for a device: {}", std::strerror(reason)),
                      "see the limits of this machine (ulimit -a)");
  return pid;
}

// What is missing of a stopped run is stored; a second signal ends the processes at once, as it
// would this one.
void wait_for_processes(std::vector<DeviceProcess>& processes) {
  int passed_on = 0;
  for (;;) {
    bool running = false;
    for (DeviceProcess& p : processes) {
      int status = 0;
      if (!p.code && ::waitpid(p.pid, &status, WNOHANG) == p.pid)
        p.code = exit_code_of_status(status);
      running = running || !p.code;
    }
    if (!running) return;
    for (; passed_on < g_told_devices; ++passed_on)
      for (const DeviceProcess& p : processes)
        if (!p.code) ::kill(p.pid, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  return cores;
}

std::vector<DeviceSlot> parse_device_slots(const std::vector<std::string>& names,
                                           const std::vector<int>& allowed) {
  std::vector<DeviceSlot> slots;
  std::set<std::string> gpus;
  std::set<int> taken;
  size_t shared = 0;  // processes without cores of their own
  for (const std::string& name : names) {
    const size_t colon = name.find(':');
    const std::string kind = name.substr(0, colon);
    DeviceSlot slot{kind == "cpu" ? kind : name, {}};
    if (kind != names.front().substr(0, names.front().find(':')))
      throw base::usage_error(
          fmt::format("--devices: {} and {} are of two kinds", names.front(), name),
          "a method is measured on one kind of device: give each kind a run of its own");
    if (kind != "cpu" && kind != "cuda")
      throw base::usage_error(fmt::format("--devices: '{}' is no device", name),
                              "cuda:0, cpu, or cpu with cores: cpu:0-3");
    if (kind != "cpu") {
      if (!gpus.insert(name == kind ? kind + ":0" : name).second)
        throw base::usage_error(fmt::format("--devices names {} twice", name),
                                "each device once: two processes would share it");
    } else if (colon != std::string::npos) {
      slot.cores = parse_core_range(name, name.substr(colon + 1));
    } else {
      ++shared;
    }
    for (const int core : slot.cores) {
      if (std::find(allowed.begin(), allowed.end(), core) == allowed.end())
        throw base::usage_error(
            fmt::format("--devices: core {} of {} is none that this process may use", core, name),
            "see `taskset -cp $$`");
      if (!taken.insert(core).second)
        throw base::usage_error(fmt::format("--devices names core {} twice", core),
                                "each core once: two processes would share it");
    }
    slots.push_back(std::move(slot));
  }
  if (shared == 0) return slots;
  if (shared < slots.size())
    throw base::usage_error("--devices: some have cores of their own, others have not",
                            "give all of them cores, or none");
  const size_t each = allowed.size() / shared;
  if (each == 0)
    throw base::usage_error(fmt::format("--devices: {} processes, and {} to share", shared,
                                        base::plural(static_cast<int64_t>(allowed.size()), "core")),
                            "name fewer");
  for (size_t i = 0; i < slots.size(); ++i)
    slots[i].cores.assign(allowed.begin() + static_cast<std::ptrdiff_t>(i * each),
                          allowed.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
  return slots;
}

std::vector<std::string> without_option(const std::vector<std::string>& words,
                                        const std::string& name) {
  std::vector<std::string> left;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == name)
      ++i;
    else if (!words[i].starts_with(name + "="))
      left.push_back(words[i]);
  return left;
}

int run_device_processes(const std::vector<DeviceSlot>& slots,
                         const std::vector<std::string>& words) {
  struct sigaction action = {};
  action.sa_handler = on_device_signal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGINT, SIG_IGN);
  const std::vector<SocketPeers> peers = make_socket_peers(static_cast<int>(slots.size()));
  const std::vector<int> before = allowed_cores();
  std::vector<DeviceProcess> processes;
  for (size_t i = 0; i < slots.size(); ++i) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--device", slots[i].device, "--peers", to_text(peers[i])});
    if (!slots[i].cores.empty()) set_affinity(slots[i].cores);  // which the process inherits
    processes.push_back({start_process(all, peers[i].descriptors), std::nullopt});
    set_affinity(before);
  }
  // Or nobody would see that one of them is gone.
  for (const SocketPeers& p : peers)
    for (const int fd : p.descriptors) ::close(fd);
  wait_for_processes(processes);
  return *processes.front().code;
}

}  // namespace evalrun::runners
