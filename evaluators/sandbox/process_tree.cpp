#include "evaluators/sandbox/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::evaluators {
namespace {

std::string read_small(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  ::close(fd);
  return text;
}

int64_t rss_of(pid_t pid) {
  const std::string text = read_small(fmt::format("/proc/{}/statm", pid));
  const size_t space = text.find(' ');
  if (space == std::string::npos) return 0;
  return std::atoll(text.c_str() + space) * ::sysconf(_SC_PAGESIZE);
}

// The kernel lists children by the thread that made them.
void add_children(pid_t pid, std::vector<pid_t>& tree) {
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(tasks.c_str()), &::closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const std::string children = read_small(tasks + "/" + entry->d_name + "/children");
    for (const char* at = children.c_str(); *at != '\0';) {
      char* end = nullptr;
      const long child = std::strtol(at, &end, 10);
      if (end == at || child <= 0) break;
      tree.push_back(static_cast<pid_t>(child));
      for (at = end; *at == ' ';) ++at;
    }
  }
}

}  // namespace

int64_t tree_rss(pid_t root) {
  if (root <= 0) return 0;
  constexpr size_t kEnough = 4096;  // more than any process limit of ours
  std::vector<pid_t> tree = {root};
  int64_t sum = 0;
  for (size_t i = 0; i < tree.size() && i < kEnough; ++i) {
    sum += rss_of(tree[i]);
    add_children(tree[i], tree);
  }
  return sum;
}

}  // namespace evalrun::evaluators
