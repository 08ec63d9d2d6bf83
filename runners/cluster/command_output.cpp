#include "runners/cluster/command_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

extern char** environ;

namespace evalrun::runners {
namespace {

base::Error no_process(const std::string& program, int reason) {
  return {base::ExitCode::kEnvironment,
          fmt::format("{} cannot be started: {}", program, std::strerror(reason)),
          "see the limits of this machine (ulimit -a)"};
}

// This process's variables with those on top.
std::vector<std::string> with_variables(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** e = environ; *e != nullptr; ++e)
    if (variables.find(std::string(*e, std::strcspn(*e, "="))) == variables.end())
      all.emplace_back(*e);
  for (const auto& [name, value] : variables) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> p;
  for (const std::string& word : words) p.push_back(const_cast<char*>(word.c_str()));
  p.push_back(nullptr);
  return p;
}

// Both until their ends. A program that fills one pipe while we wait for the other would hang.
void read_all(int out, int err, CommandOutput& output) {
  std::array<pollfd, 2> ready = {pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  std::array<std::string*, 2> texts = {&output.out, &output.err};
  while (ready[0].fd >= 0 || ready[1].fd >= 0) {
    if (::poll(ready.data(), ready.size(), -1) < 0) continue;  // a signal
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].fd < 0 || ready[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t n = ::read(ready[i].fd, buffer.data(), buffer.size());
      if (n > 0)
        texts[i]->append(buffer.data(), static_cast<size_t>(n));
      else if (n == 0 || errno != EINTR)
        ready[i].fd = -1;
    }
  }
}

}  // namespace

int exit_code_of_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

CommandOutput run_command(const std::vector<std::string>& words,
                          const std::map<std::string, std::string>& variables) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) throw no_process(words.front(), errno);
  if (::pipe2(err, O_CLOEXEC) != 0) {
    const int reason = errno;
    ::close(out[0]), ::close(out[1]);
    throw no_process(words.front(), reason);
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err[1], STDERR_FILENO);
  const std::vector<std::string> environment = with_variables(variables);
  std::vector<char*> arguments = pointers(words), strings = pointers(environment);
  pid_t pid = 0;
  const int reason =
      ::posix_spawnp(&pid, arguments[0], &files, nullptr, arguments.data(), strings.data());
  posix_spawn_file_actions_destroy(&files);
  ::close(out[1]), ::close(err[1]);
  CommandOutput output;
  if (reason == 0) {
    read_all(out[0], err[0], output);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    output.exit_code = exit_code_of_status(status);
  }
  ::close(out[0]), ::close(err[0]);
  if (reason == ENOENT)
    output.found = false;
  else if (reason != 0)
    throw no_process(words.front(), reason);
  return output;
}

}  // namespace evalrun::runners
