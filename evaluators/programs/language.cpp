#include "evaluators/programs/language.h"

#include <fcntl.h>
#include <re2/re2.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "evaluators/programs/support/embedded.h"

namespace evalrun::evaluators {

std::string support_file(std::string_view name) {
  for (const base::EmbeddedFile& file : embedded_support())
    if (file.name == name) return std::string(file.text);
  EVALRUN_CHECK(false, "no embedded file {}", name);
  return {};
}

const base::Registry<Language>& languages() {
  static const base::Registry<Language> kRegistry = [] {
    base::Registry<Language> registry("language");
    for (Language& language :
         std::vector<Language>{python_language(), cpp_language(), java_language(), js_language(),
                               go_language(), rust_language()}) {
      const std::string name = language.name;
      registry.add(name, std::move(language));
    }
    return registry;
  }();
  return kRegistry;
}

std::string first_line_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);  // java says its version there
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::array<std::string, 3> environment = {"PATH=/usr/bin", "HOME=/tmp", "LC_ALL=C"};
  std::array<char*, 4> envp = {environment[0].data(), environment[1].data(), environment[2].data(),
                               nullptr};
  pid_t pid = -1;
  const int code = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  std::array<char, 1024> buffer;
  for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 1;
  if (code == 0) ::waitpid(pid, &status, 0);
  if (status != 0) return {};
  return text.substr(0, text.find('\n'));
}

void require_file(Toolchain& toolchain, const std::string& path, const std::string& package) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) toolchain.packages.push_back(package);
}

std::string without_function(std::string code, const std::string& pattern) {
  const re2::RE2 header(pattern, re2::RE2::Latin1);
  EVALRUN_CHECK(header.ok(), "{}", pattern);
  re2::StringPiece found;
  while (header.Match(code, 0, code.size(), re2::RE2::UNANCHORED, &found, 1)) {
    const size_t begin = static_cast<size_t>(found.data() - code.data());
    const size_t end = matching_brace(code, begin + found.size() - 1);
    code.erase(begin, end == std::string::npos ? end : end - begin);
  }
  return code;
}

std::string without_last_line(const std::string& text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos) return {};
  const size_t line = text.rfind('\n', last);
  return line == std::string::npos ? std::string() : text.substr(0, line + 1);
}

std::pair<std::string, std::string> split_lines(const std::string& code,
                                                const std::vector<std::string>& words) {
  std::pair<std::string, std::string> parts;
  for (const std::string& line : base::split(code, '\n')) {
    bool chosen = false;
    for (const std::string& word : words) chosen = chosen || line.starts_with(word);
    (chosen ? parts.first : parts.second) += line + "\n";
  }
  return parts;
}

}  // namespace evalrun::evaluators
