#include "runners/cli/gate/other_program.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "runners/cli/command_line.h"

namespace evalrun::cli {

using base::ExitCode;

std::string last_line(const std::string& file) {
  std::string last;
  for (const std::string& line : base::split(base::read_file(file), '\n'))
    if (!base::trim(line).empty()) last = base::trim(line);
  return last;
}

void require_measured(const std::vector<std::string>& words, int code, const std::string& log,
                      const std::string& when) {
  if (code == 0 || code == static_cast<int>(ExitCode::kCorrectness)) return;
  if (code == static_cast<int>(ExitCode::kInterrupted) || code == 128 + SIGINT)
    throw base::Error(ExitCode::kInterrupted, "interrupted: the check has no verdict",
                      "start it again; it measures anew");
  const std::string& program = words.front();
  if (code == 126 || code == 127)
    throw base::usage_error(fmt::format("--against: '{}' cannot be started", program),
                            "name the evalrun of the other build");
  if (code == static_cast<int>(ExitCode::kDevice))
    throw base::Error(ExitCode::kDevice,
                      fmt::format("{}: {}: {}", program, shell_line(words), last_line(log)),
                      "see `evalrun doctor` and the kernel's log (dmesg), then start it again; it "
                      "measures anew");
  if (code > 128)
    throw base::data_error(
        program, shell_line(words),
        fmt::format("was killed by signal {} ({}){}", code - 128, ::strsignal(code - 128), when),
        "short of memory? Both builds are loaded at once: see the kernel's log "
        "(dmesg)");
  throw base::data_error(program, shell_line(words),
                         fmt::format("ended with exit code {}{}: {}", code, when, last_line(log)),
                         "run it by hand; both builds must know the suite and its options");
}

}  // namespace evalrun::cli
