#include "runners/machine/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "engine/base/text.h"
#include "engine/cpu/cores.h"
#include "engine/cpu/places.h"
#include "engine/devices.h"
#include "runners/machine/build_info.h"
#include "runners/machine/processor_energy.h"

extern char** environ;

namespace evalrun::runners {
namespace {

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The value of the first line "name : value" with this name, in /proc/cpuinfo or a similar file.
std::string field_of(const char* path, std::string_view name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && base::trim(std::string_view(line).substr(0, colon)) == name)
      return std::string(base::trim(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

// The flags that decide which kernels can run, out of the hundred a processor lists.
std::string vector_flags() {
  static const std::set<std::string> wanted = {
      "sse4_2",   "avx",      "avx2",     "fma",      "f16c",        "avx512f",
      "avx512bw", "avx512vl", "avx512dq", "avx_vnni", "avx512_vnni", "avx512_bf16",
      "amx_tile", "amx_bf16", "amx_int8", "asimd",    "sve"};
  std::string all = field_of("/proc/cpuinfo", "flags");
  if (all.empty()) all = field_of("/proc/cpuinfo", "Features");
  std::string found;
  std::istringstream in(all);
  for (std::string flag; in >> flag;)
    if (wanted.contains(flag)) found += (found.empty() ? "" : " ") + flag;
  return found;
}

std::string os_name() {
  std::ifstream in("/etc/os-release");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("PRETTY_NAME=")) {
      std::string name = line.substr(12);
      if (name.size() >= 2 && name.front() == '"') name = name.substr(1, name.size() - 2);
      return name;
    }
  return {};
}

}  // namespace

std::map<std::string, std::string> evalrun_variables() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    // The judge's key is a secret: it must reach no result file and no message.
    if (text.starts_with("EVALRUN_") && !text.starts_with("EVALRUN_JUDGE_KEY=") &&
        equals != std::string_view::npos)
      found[std::string(text.substr(0, equals))] = std::string(text.substr(equals + 1));
  }
  return found;
}

std::map<std::string, std::string> figure_variables() {
  std::map<std::string, std::string> variables = evalrun_variables();
  for (const char* name : {"EVALRUN_HOME", "EVALRUN_DATA", "EVALRUN_DB", "EVALRUN_SHARED",
                           "EVALRUN_ISA", "EVALRUN_NO_WEIGHT_CACHE", "EVALRUN_CACHE_MAX",
                           "EVALRUN_NVML", "EVALRUN_POWERCAP", "EVALRUN_MACHINE"})
    variables.erase(name);
  return variables;
}

CpuTimes read_cpu_times() {
  CpuTimes times;
  std::istringstream in(first_line("/proc/stat"));
  std::string label;
  in >> label;
  // user nice system idle iowait irq softirq steal; guest times are part of user.
  int64_t value = 0;
  for (int i = 0; i < 8 && in >> value; ++i) {
    times.total += value;
    if (i == 7) times.steal = value;
  }
  return times;
}

std::map<std::string, std::string> capture_environment() {
  std::map<std::string, std::string> e;
  std::string cpu = field_of("/proc/cpuinfo", "model name");
  if (cpu.empty()) cpu = field_of("/proc/cpuinfo", "CPU part");
  e["cpu"] = cpu;
  e["cpu_flags"] = vector_flags();
  e["microcode"] = field_of("/proc/cpuinfo", "microcode");
  e["cores"] = std::to_string(std::thread::hardware_concurrency());
  e["cores_allowed"] = std::to_string(engine::allowed_cores());
  e["numa_nodes"] = std::to_string(
      engine::cpu::places_of(engine::cpu::cpu_order().cpus, "/sys/devices/system").nodes().size());
  e["memory_bytes"] =
      std::to_string(static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE));
  if (utsname u = {}; ::uname(&u) == 0) {
    e["kernel"] = fmt::format("{} {}", u.sysname, u.release);
    e["architecture"] = u.machine;
  }
  e["os"] = os_name();
  e["governor"] = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  e["load"] = first_line("/proc/loadavg");
  std::vector<std::string> domains;
  for (const auto& [folder, counter] : read_energy().domains) domains.push_back(folder);
  e["energy_domains"] = fmt::format("{}", fmt::join(domains, " "));
  const CpuTimes times = read_cpu_times();
  if (times.total > 0)
    e["steal_share"] =
        fmt::format("{:.4f}", static_cast<double>(times.steal) / static_cast<double>(times.total));
  const BuildInfo& build = build_info();
  e["version"] = build.version;
  e["commit"] = build.commit;
  e["build"] = build.id;
  e["build_type"] = build.build_type;
  e["compiler"] = build.compiler;
  e["sanitizers"] = build.sanitizers;
  e["cuda"] = build.cuda ? "compiled in" : "not compiled in";
  for (const auto& [name, value] : evalrun_variables()) e["env." + name] = value;
  std::erase_if(e, [](const auto& item) { return item.second.empty(); });
  return e;
}

void reset_peak_memory() {
  // "5" resets VmHWM (proc(5)); not every container may write here, then peaks only grow.
  const int fd = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(fd, "5", 1);
  ::close(fd);
}

int64_t peak_memory_bytes() {
  const std::string peak = field_of("/proc/self/status", "VmHWM");
  if (!peak.empty()) return std::strtoll(peak.c_str(), nullptr, 10) * 1024;
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace evalrun::runners
