#include "tests/e2e/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"

namespace evalrun::tests {
namespace fs = std::filesystem;

namespace {

// In the child, between fork and exec.
[[noreturn]] void become(const TempFolder& folder, const std::vector<std::string>& command) {
  const auto redirect = [&](const char* name, int flags, int target) {
    const int fd = ::open(name, flags, 0644);
    if (fd < 0 || ::dup2(fd, target) < 0) ::_exit(126);
  };
  if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect("stdout.txt", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  redirect("stderr.txt", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  std::vector<std::string> ours;
  for (char** e = environ; *e != nullptr; ++e)
    if (std::strncmp(*e, "EVALRUN_", 8) == 0) ours.emplace_back(*e, std::strcspn(*e, "="));
  for (const std::string& name : ours) ::unsetenv(name.c_str());
  ::setenv("EVALRUN_HOME", folder.file("home").c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

Child::Child(const TempFolder& folder, const std::vector<std::string>& command) {
  pid_ = ::fork();
  EVALRUN_CHECK(pid_ >= 0, "fork: {}", std::strerror(errno));
  if (pid_ == 0) become(folder, command);
}
Child::~Child() {
  if (!ended_) {
    send(SIGKILL);
    wait();
  }
}
void Child::send(int signal) const { ::kill(pid_, signal); }
bool Child::running() {
  if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return !ended_;
}
int Child::wait() {
  while (!ended_) ended_ = ::waitpid(pid_, &status_, 0) == pid_;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

ProgramResult run_command_in(const TempFolder& folder, const std::vector<std::string>& command) {
  Child child(folder, command);
  ProgramResult result;
  result.exit_code = child.wait();
  result.out = folder.read("stdout.txt");
  result.err = folder.read("stderr.txt");
  return result;
}

std::string tiny_model() { return EVALRUN_TEST_DATA "/models/tiny-llama"; }

void write_prompts(const TempFolder& folder, int n) {
  static constexpr std::array<const char*, 12> kWords = {
      "the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "far", "away"};
  base::Rng rng(20251121);
  std::string text;
  for (int i = 0; i < n; ++i) {
    std::string prompt;
    for (int w = 0; w < 16; ++w)
      prompt += std::string(w == 0 ? "" : " ") + kWords[rng.below(kWords.size())];
    text +=
        nlohmann::json({{"id", fmt::format("p{}", i)}, {"prompt", prompt}, {"chat", false}}).dump();
    text += "\n";
  }
  folder.write("prompts.jsonl", text);
}

std::vector<std::string> run_arguments(int max_new, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"run", "-m", tiny_model(), "--db", "r.db", "--tasks",
                                        "jsonl:prompts.jsonl", "--methods", "ar,pld", "-n",
                                        std::to_string(max_new), "-w", "0", "-t", "1",
                                        // The golden table counts what float32 accepts.
                                        "--dtype", "f32", "--ignore-eos", "--aa"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace evalrun::tests
