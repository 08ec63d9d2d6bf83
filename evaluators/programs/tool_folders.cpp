#include "evaluators/programs/tool_folders.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::evaluators {
namespace fs = std::filesystem;

namespace {

BoxLimits limits_of_preparing() {
  BoxLimits l;
  l.wall_s = 300;
  l.data = int64_t{3} << 30;
  l.tree_memory = int64_t{4} << 30;
  l.processes = 512;
  l.file_bytes = int64_t{512} << 20;
  l.open_files = 1024;
  l.tmp_bytes = int64_t{2} << 30;
  l.output_bytes = size_t{1} << 20;
  return l;
}

std::string recipe_hash(const Sandbox& sandbox, const Language& language,
                        const Toolchain& toolchain) {
  const bool boxed = sandbox.kind() != Sandbox::Kind::kNone;
  std::string recipe = toolchain.version + (boxed ? "\n" : "\nunboxed\n");
  for (const auto& [name, text] : language.tool_files) recipe += name + "\n" + text + "\n";
  if (language.tool_command)
    for (const std::string& word : language.tool_command({"/box", "/tool", boxed}))
      recipe += word + "\n";
  return base::sha256_hex(recipe).substr(0, 16);
}

// Readable for the users that programs run as, whatever our umask is.
void let_others_read(const fs::path& folder) {
  const auto open_up = [](const fs::path& path) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || S_ISLNK(info.st_mode)) return;
    const mode_t run = (info.st_mode & 0100) != 0 ? 0111 : 0;
    ::chmod(path.c_str(), 0644 | run);
  };
  open_up(folder);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) open_up(entry.path());
}

// A folder that goes away unless it was renamed.
struct TemporaryFolder {
  std::string path;
  explicit TemporaryFolder(const fs::path& beside) : path(beside.string() + ".XXXXXX") {
    if (::mkdtemp(path.data()) == nullptr)
      throw base::Error(base::ExitCode::kEnvironment,
                        fmt::format("{}: {}", path, std::strerror(errno)),
                        "EVALRUN_HOME names another place for prepared toolchains");
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

// So that two processes do not do the same work at once; it is correct without.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (fd_ >= 0) ::flock(fd_, LOCK_EX);
  }
  ~FileLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

void make(Sandbox& sandbox, const Language& language, const fs::path& target) {
  const TemporaryFolder folder(target);
  for (const auto& [name, text] : language.tool_files) {
    const fs::path file = fs::path(folder.path) / name;
    fs::create_directories(file.parent_path());
    base::write_file_atomic(file.string(), text);
  }
  let_others_read(folder.path);
  if (language.tool_command) {
    const auto job = sandbox.open_job();
    BoxRequest request;
    request.command = language.tool_command({sandbox.job_path(*job), sandbox.tool_path(folder.path),
                                             sandbox.kind() != Sandbox::Kind::kNone});
    request.tool_folder = folder.path;
    request.tool_writable = true;
    request.proc = true;
    request.limits = limits_of_preparing();
    const BoxResult result = sandbox.run(*job, request);
    sandbox.reclaim(folder.path);
    if (result.end != BoxResult::End::kExited || result.exit_code != 0) {
      const std::string said = result.problem.empty() ? result.err : result.problem;
      throw base::Error(
          base::ExitCode::kEnvironment,
          fmt::format("preparing {} failed: {}", language.title, base::trim(said.substr(0, 2000))),
          "is its Debian package complete? evalrun doctor lists the packages");
    }
    let_others_read(folder.path);
  }
  std::error_code error;
  fs::rename(folder.path, target, error);
  // Another process was faster, which is as good.
  if (error && !fs::exists(target))
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("{}: {}", target.string(), error.message()));
}

}  // namespace

std::string prepare_tool_folder(Sandbox& sandbox, const Language& language,
                                const Toolchain& toolchain, const std::string& root) {
  if (language.tool_files.empty()) return {};
  static std::mutex mutex;  // whoever needs it waits for it
  const std::lock_guard lock(mutex);
  const fs::path target = fs::path(root) / "toolchains" /
                          (language.name + "-" + recipe_hash(sandbox, language, toolchain));
  std::error_code error;
  if (fs::exists(target, error)) return target.string();
  fs::create_directories(target.parent_path(), error);
  if (error)
    throw base::Error(base::ExitCode::kEnvironment,
                      fmt::format("{}: {}", target.parent_path().string(), error.message()),
                      "EVALRUN_HOME names another place for prepared toolchains");
  const FileLock turn(target.string() + ".lock");
  // Once is enough: every answer in the language would wait for it again.
  static std::map<std::string, std::string> failed;
  if (const auto it = failed.find(target.string()); it != failed.end())
    throw base::Error(base::ExitCode::kEnvironment, it->second);
  if (fs::exists(target, error)) return target.string();
  try {
    make(sandbox, language, target);
  } catch (const base::Error& problem) {
    failed[target.string()] = problem.message();
    throw;
  }
  return target.string();
}

}  // namespace evalrun::evaluators
