#include "runners/cli/command_line.h"

#include <algorithm>

#include "engine/base/text.h"
#include "runners/machine/environment.h"

namespace evalrun::cli {
namespace {

std::string quote(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::vector<std::string> process_arguments() {
  std::string bytes = base::read_file("/proc/self/cmdline");
  if (!bytes.empty() && bytes.back() == '\0') bytes.pop_back();
  return base::split(bytes, '\0');
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quote(word);
  return line;
}

std::string resume_line(std::vector<std::string> arguments, const std::string& nonce) {
  std::erase(arguments, "--no-resume");
  if (!nonce.empty() && std::find(arguments.begin(), arguments.end(), "--nonce") == arguments.end())
    arguments.insert(arguments.end(), {"--nonce", nonce});
  std::string line;
  for (const auto& [name, value] : runners::evalrun_variables())
    line += name + "=" + quote(value) + " ";
  return line + shell_line(arguments);
}

}  // namespace evalrun::cli
