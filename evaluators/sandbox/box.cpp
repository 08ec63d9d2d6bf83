#include "evaluators/sandbox/box.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/install_paths.h"
#include "engine/base/text.h"
#include "evaluators/sandbox/box_process.h"

namespace evalrun::evaluators {
namespace fs = std::filesystem;

namespace {

constexpr unsigned kFirstUid = 210000;  // no distribution gives these to anybody
constexpr unsigned kUidsPerProcess = 64, kProcesses = 1000;
constexpr int kMounts = 12;  // folders that root's helper can bind at once
constexpr int64_t kScratchBytes = int64_t{256} << 20;
constexpr const char* kInside = "65534";

std::string find_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : base::split(path == nullptr ? "" : path, ':')) {
    const fs::path file = fs::path(folder) / program;
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file.string();
  }
  return {};
}

std::string helper_program() {
  if (const char* named = std::getenv("EVALRUN_BOX_INIT"); named != nullptr && *named != '\0')
    return named;
  // Built, it lies beside the program; installed, it is no command of a user's.
  const fs::path beside = base::program_folder() / "evalrun-box-init";
  const fs::path installed = base::shipped_path("libexec/evalrun/evalrun-box-init");
  return ::access(beside.c_str(), X_OK) != 0 && !installed.empty() ? installed.string()
                                                                   : beside.string();
}

// Memory where it can run programs, otherwise the usual place for temporary files.
fs::path scratch_root() {
  struct statvfs info {};
  const char* shm = "/dev/shm";
  if (::access(shm, W_OK | X_OK) == 0 && ::statvfs(shm, &info) == 0 &&
      (info.f_flag & ST_NOEXEC) == 0 &&
      static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize) > kScratchBytes)
    return shm;
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error)
    throw base::Error(base::ExitCode::kEnvironment, "no folder for programs: " + error.message(),
                      "set TMPDIR to one that exists");
  return folder;
}

constexpr std::string_view kFolderPrefix = "evalrun-box-";

// Folders of processes that were killed: no such process, and nobody holds the folder's lock. The
// number alone would not do where containers share the folder but not the processes.
void remove_stale(const fs::path& root) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFolderPrefix)) continue;
    const int pid = std::atoi(name.c_str() + kFolderPrefix.size());
    if (pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    const int lock = ::open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) continue;
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), error);
    ::close(lock);
  }
}

// First of a range of user ids that exist in our user namespace, whole host or container.
unsigned first_uid() {
  std::ifstream map("/proc/self/uid_map");
  uint64_t inside = 0, outside = 0, count = 0, last = 0;
  const uint64_t needed = kFirstUid + uint64_t{kUidsPerProcess} * kProcesses;
  while (map >> inside >> outside >> count) {
    if (inside <= kFirstUid && inside + count >= needed) return kFirstUid;
    last = std::max(last, inside + count);
  }
  return last > 2000 ? static_cast<unsigned>(last - 1500) : 1;
}

std::string advice() {
  return "install it with: apt-get install bubblewrap - and let it make user namespaces: sysctl "
         "kernel.unprivileged_userns_clone=1 (Debian), an AppArmor profile for bwrap (Ubuntu), a "
         "container with --security-opt seccomp=unconfined; --allow-unsafe runs generated code "
         "with no protection";
}

std::string bytes_text(int64_t n) { return std::to_string(n); }

// Seconds. The wall clock comes first; this is for what it cannot see: many threads.
int64_t cpu_limit(const BoxRequest& request) {
  const double wall = request.limits.wall_s + (request.compiles_first ? request.compile_wall_s : 0);
  return static_cast<int64_t>(std::ceil(wall)) + 1;
}

}  // namespace

struct Sandbox::Slots {
  std::mutex mutex;
  std::condition_variable freed;
  std::array<bool, kUidsPerProcess> taken{};
  unsigned base_uid = 0;
};

Sandbox::Sandbox(const SandboxOptions& options, Kind kind)
    : options_(options),
      kind_(kind),
      bwrap_(find_in_path("bwrap")),
      slots_(std::make_unique<Slots>()) {
  if (kind != Kind::kNone && bwrap_.empty())
    throw base::Error(base::ExitCode::kEnvironment, "bubblewrap (bwrap) is not installed",
                      advice());
  slots_->base_uid = first_uid() + static_cast<unsigned>(::getpid()) % kProcesses * kUidsPerProcess;
  if (slots_->base_uid < kFirstUid) slots_->base_uid = first_uid();
  const fs::path root = scratch_root();
  remove_stale(root);
  std::string name = (root / fmt::format("{}{}-XXXXXX", kFolderPrefix, ::getpid())).string();
  if (::mkdtemp(name.data()) == nullptr)
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("{}: {}", name, std::strerror(errno)),
                      "the sandbox needs a place for programs: free some space or set TMPDIR");
  folder_ = name;
  lock_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0) ::flock(lock_, LOCK_SH);  // for remove_stale() of others
  init_ = folder_ + "/hx/evalrun-box-init";
  // A copy: where the program lies, a user with no rights may not be able to go.
  std::error_code error;
  fs::create_directory(folder_ + "/hx", error);
  if (!fs::copy_file(helper_program(), init_, error))
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("{}: {}", helper_program(), error.message()),
                      "the sandbox's helper lies beside evalrun: build or install both");
  ::chmod(init_.c_str(), 0755);
  ::chmod((folder_ + "/hx").c_str(), 0755);
  for (int i = 0; i < kMounts; ++i) fs::create_directory(fmt::format("{}/m{}", folder_, i), error);
  ::chmod(folder_.c_str(), 0711);
}

Sandbox::~Sandbox() {
  std::error_code error;
  fs::remove_all(folder_, error);
  if (lock_ >= 0) ::close(lock_);
}

const char* Sandbox::name() const {
  switch (kind_) {
    case Kind::kUserNamespace:
      return "bubblewrap";
    case Kind::kRoot:
      return "bubblewrap-root";
    case Kind::kNone:
      return "none";
  }
  return "";
}

std::shared_ptr<Sandbox> Sandbox::open(const SandboxOptions& options, std::optional<Kind> only) {
  std::vector<Kind> kinds = {Kind::kUserNamespace};
  if (::geteuid() == 0) kinds.push_back(Kind::kRoot);
  if (only) kinds = {*only};
  std::string found;
  for (const Kind kind : kinds) {
    if (kind == Kind::kNone) continue;
    try {
      std::shared_ptr<Sandbox> sandbox(new Sandbox(options, kind));
      const auto job = sandbox->open_job();
      BoxRequest request;
      request.command = {"/usr/bin/true"};
      request.tool_folder = sandbox->folder_ + "/hx";
      request.proc = true;
      const BoxResult result = sandbox->run(*job, request);
      if (result.end == BoxResult::End::kExited && result.exit_code == 0) return sandbox;
      found = result.problem.empty() ? "'true' did not end well in it" : result.problem;
    } catch (const std::exception& error) {
      found = error.what();
    }
  }
  if (options.allow_unsafe || only == Kind::kNone)
    return std::shared_ptr<Sandbox>(new Sandbox(options, Kind::kNone));
  throw base::Error(base::ExitCode::kEnvironment,
                    "no sandbox, so generated code is not run: " + found, advice());
}

unsigned Sandbox::uid_of(int slot) const {
  return ::geteuid() == 0 && kind_ != Kind::kNone ? slots_->base_uid + static_cast<unsigned>(slot)
                                                  : 0;
}

Sandbox::Job::Job(Sandbox& sandbox) : sandbox_(sandbox), slot_(-1) {
  {
    std::unique_lock lock(sandbox.slots_->mutex);
    auto& taken = sandbox.slots_->taken;
    auto free = taken.end();
    sandbox.slots_->freed.wait(lock, [&] {
      free = std::find(taken.begin(), taken.end(), false);
      return free != taken.end();
    });
    *free = true;
    slot_ = static_cast<int>(free - taken.begin());
  }
  folder_ = fmt::format("{}/j{}", sandbox.folder_, slot_);
  std::error_code error;
  fs::remove_all(folder_, error);
  const unsigned uid = sandbox.uid_of(slot_);
  if (::mkdir(folder_.c_str(), 0700) != 0 ||
      (uid != 0 && ::chown(folder_.c_str(), uid, uid) != 0)) {
    const std::string why = fmt::format("{}: {}", folder_, std::strerror(errno));
    release();
    throw base::Error(base::ExitCode::kEnvironment, why,
                      "is the disk full? TMPDIR names another place");
  }
}

Sandbox::Job::~Job() { release(); }

void Sandbox::Job::release() {
  std::error_code error;
  fs::remove_all(folder_, error);
  const std::lock_guard lock(sandbox_.slots_->mutex);
  sandbox_.slots_->taken[static_cast<size_t>(slot_)] = false;
  sandbox_.slots_->freed.notify_one();
}

void Sandbox::Job::write(const std::string& name, const std::string& bytes) const {
  const std::string path = folder_ + "/" + name;
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("{}: {}", path, std::strerror(errno)),
                      "is the disk full? TMPDIR names another place");
  ::chmod(path.c_str(), 0644);
}

void Sandbox::Job::keep_only_program() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (entry.path().filename() != "program") fs::remove_all(entry.path(), error);
  ::chmod((folder_ + "/program").c_str(), 0111);
}

std::unique_ptr<Sandbox::Job> Sandbox::open_job() { return std::unique_ptr<Job>(new Job(*this)); }

std::string Sandbox::job_path(const Job& job) const {
  return kind_ == Kind::kNone ? job.folder_ : "/box";
}

std::string Sandbox::tool_path(const std::string& tool_folder) const {
  return kind_ == Kind::kNone ? tool_folder : "/tool";
}

void Sandbox::reclaim(const std::string& folder) const {
  if (::geteuid() != 0) return;
  std::error_code error;
  EVALRUN_CHECK(::lchown(folder.c_str(), 0, 0) == 0);
  for (const auto& entry : fs::recursive_directory_iterator(folder, error))
    EVALRUN_CHECK(::lchown(entry.path().c_str(), 0, 0) == 0);
}

// `evalrun-box-init box ...` with the limits, seen from inside.
std::vector<std::string> Sandbox::box_command(const Job& job, const BoxRequest& request) const {
  const BoxLimits& l = request.limits;
  std::vector<std::string> command = {
      kind_ == Kind::kNone ? init_ : "/hx/evalrun-box-init", "box",
      // With user namespaces the program is nobody already.
      std::to_string(kind_ == Kind::kRoot ? uid_of(job.slot_) : 0),
      std::to_string(cpu_limit(request)), bytes_text(l.address_space), bytes_text(l.data),
      // Unboxed, the limit would count every process of this user.
      std::to_string(kind_ == Kind::kNone ? 0 : l.processes), bytes_text(l.file_bytes),
      std::to_string(l.open_files), bytes_text(int64_t{8} << 20), "--"};
  command.insert(command.end(), request.command.begin(), request.command.end());
  return command;
}

std::vector<std::string> Sandbox::bubblewrap(
    const Job& job, const BoxRequest& request,
    std::vector<std::pair<std::string, std::string>>& binds) const {
  std::vector<std::string> c = {bwrap_};
  const auto add = [&](std::initializer_list<std::string> words) { c.insert(c.end(), words); };
  // Folders that a user without rights may be unable to reach come by way of a mount point.
  const auto reachable = [&](const std::string& folder) {
    if (kind_ != Kind::kUserNamespace || ::geteuid() != 0) return folder;
    EVALRUN_CHECK(binds.size() < kMounts, "too many folders to show");
    binds.emplace_back(folder, fmt::format("{}/m{}", folder_, binds.size()));
    return binds.back().second;
  };
  if (kind_ == Kind::kUserNamespace)
    add({"--unshare-user", "--unshare-all", "--disable-userns", "--uid", kInside, "--gid",
         kInside});
  else
    add({"--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
         "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add",
         "CAP_SETPCAP"});
  add({"--hostname", "box", "--as-pid-1", "--die-with-parent", "--new-session", "--clearenv",
       "--setenv", "PATH", "/usr/bin", "--setenv", "HOME", "/tmp", "--setenv", "LANG", "C.UTF-8"});
  for (const auto& [key, value] : request.environment) add({"--setenv", key, value});
  add({"--ro-bind", "/usr", "/usr"});
  for (const char* name : {"bin", "lib", "lib64"})
    add({"--symlink", std::string("usr/") + name, std::string("/") + name});
  add({"--perms", "0755", "--dir", "/etc"});
  for (const char* path : {"/etc/alternatives", "/etc/ld.so.cache"})
    add({"--ro-bind-try", path, path});
  // Java's configuration files are symbolic links to here.
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/etc", error))
    if (entry.path().filename().string().starts_with("java-"))
      add({"--ro-bind", entry.path().string(), entry.path().string()});
  add({"--perms", "0644", "--ro-bind-data", "7", "/etc/passwd"});
  for (const std::string& folder : options_.read_only_folders)
    add({"--ro-bind", reachable(folder), folder});
  if (!request.tool_folder.empty())
    add({request.tool_writable ? "--bind" : "--ro-bind", reachable(request.tool_folder), "/tool"});
  add({"--ro-bind", folder_ + "/hx", "/hx"});
  // Without user namespaces bubblewrap is root without the right to pass other people's folders.
  add({request.job_writable ? "--bind" : "--ro-bind", job.folder_, "/box"});
  if (request.proc) add({"--proc", "/proc"});
  add({"--dev",
       "/dev",
       "--perms",
       "1777",
       "--size",
       bytes_text(request.limits.tmp_bytes),
       "--tmpfs",
       "/tmp",
       "--perms",
       "1777",
       "--size",
       bytes_text(int64_t{8} << 20),
       "--tmpfs",
       "/dev/shm",
       "--remount-ro",
       "/dev",
       "--remount-ro",
       "/",
       "--chdir",
       "/tmp",
       "--seccomp",
       "5",
       "--json-status-fd",
       "6",
       "--"});
  return c;
}

BoxResult Sandbox::run(const Job& job, const BoxRequest& request) {
  BoxResult broken;
  if (request.input.size() > kMaxInput) {
    broken.problem = "the program text is too long";
    return broken;
  }
  const unsigned uid = uid_of(job.slot_);
  if (request.tool_writable && uid != 0 && ::chown(request.tool_folder.c_str(), uid, uid) != 0) {
    broken.problem = fmt::format("chown {}: {}", request.tool_folder, std::strerror(errno));
    return broken;
  }
  std::vector<std::string> command = box_command(job, request), environment;
  if (kind_ == Kind::kNone) {
    environment = {"PATH=/usr/bin", "HOME=" + job.folder_, "LANG=C.UTF-8"};
    for (const auto& [key, value] : request.environment) environment.push_back(key + "=" + value);
    BoxResult result = supervise(command, environment, request, 0, false);
    result.cpu_limit_s = static_cast<double>(cpu_limit(request));
    return result;
  }
  std::vector<std::pair<std::string, std::string>> binds;
  std::vector<std::string> outer = bubblewrap(job, request, binds);
  outer.insert(outer.end(), command.begin(), command.end());
  if (kind_ == Kind::kUserNamespace && uid != 0) {
    std::vector<std::string> drop = {init_, "drop", std::to_string(uid)};
    for (const auto& [from, to] : binds) drop.insert(drop.end(), {from, to});
    drop.emplace_back("--");
    outer.insert(outer.begin(), drop.begin(), drop.end());
  }
  // Empty environment: bubblewrap's own is not hidden from the box by --clearenv.
  BoxResult result = supervise(outer, {}, request, uid, true);
  result.cpu_limit_s = static_cast<double>(cpu_limit(request));
  return result;
}

}  // namespace evalrun::evaluators
