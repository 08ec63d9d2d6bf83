#include "tests/repo/source_tree.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::tests {
namespace fs = std::filesystem;

std::vector<std::string> source_folders() {
  return {"engine", "methods", "datasets", "evaluators", "runners", "results", "reports", "tests"};
}

std::vector<std::string> source_files(const std::vector<std::string>& extensions) {
  std::vector<std::string> files;
  for (const std::string& folder : source_folders()) {
    for (const auto& entry : fs::recursive_directory_iterator(absolute(folder))) {
      const std::string extension = entry.path().extension().string();
      if (entry.is_regular_file() &&
          std::find(extensions.begin(), extensions.end(), extension) != extensions.end())
        files.push_back(entry.path().lexically_relative(EVALRUN_SOURCE_DIR).string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string absolute(const std::string& relative) {
  return (fs::path(EVALRUN_SOURCE_DIR) / relative).string();
}

CommandResult run_command(const std::string& command) {
  const std::string in_root = fmt::format("cd '{}' && ({}) 2>&1", EVALRUN_SOURCE_DIR, command);
  FILE* pipe = popen(in_root.c_str(), "r");
  EVALRUN_CHECK(pipe != nullptr, "cannot run '{}'", command);
  CommandResult result;
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

namespace {

// Paths that a command of git prints and that exist: a file removed from the working tree but
// not yet from the index is about to go. A checkout owned by somebody else (a mounted volume in CI)
// is still worth checking.
std::vector<std::string> paths_from_git(const std::string& command) {
  const CommandResult git = run_command("git -c safe.directory='*' " + command);
  if (git.exit_code != 0) return {};
  std::vector<std::string> files;
  for (std::string& line : base::split(git.output, '\n'))
    if (!line.empty() && fs::exists(absolute(line))) files.push_back(std::move(line));
  return files;
}

}  // namespace

std::vector<std::string> tracked_files() { return paths_from_git("ls-files"); }

std::vector<std::string> changed_files() {
  for (const char* main : {"origin/main", "main", "origin/HEAD"}) {
    const CommandResult base =
        run_command(fmt::format("git -c safe.directory='*' merge-base HEAD {}", main));
    if (base.exit_code == 0)
      return paths_from_git("diff --name-only " + std::string(base::trim(base.output)));
  }
  return {};
}

}  // namespace evalrun::tests
