// The source tree as the guards see it.
#pragma once
#include <string>
#include <vector>

namespace evalrun::tests {

// Folders of C++ that belong to the project, tests included.
std::vector<std::string> source_folders();

// Paths of files under source_folders() that end in one of `extensions`, relative to the root,
// sorted. From the file system, not from git, so that a new file is checked before it is added.
std::vector<std::string> source_files(const std::vector<std::string>& extensions);

// Absolute path of a file of the tree.
std::string absolute(const std::string& relative);

struct CommandResult {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};
// Runs a shell command with the root as working directory.
CommandResult run_command(const std::string& command);

// Files git tracks, relative to the root; empty when this is no git checkout (e.g. a source
// archive).
std::vector<std::string> tracked_files();

// Files that differ from where this branch left main; empty where git does not know that.
std::vector<std::string> changed_files();

}  // namespace evalrun::tests
