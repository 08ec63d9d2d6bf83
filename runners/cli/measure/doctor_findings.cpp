#include "runners/cli/measure/doctor_findings.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/error.h"
#include "engine/devices.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

const char* to_string(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kNote:
      return "note";
    case Level::kWarning:
      return "WARNING";
    case Level::kProblem:
      return "PROBLEM";
  }
  return "";
}

}  // namespace

void examine_isas(Findings& out) {
  const std::vector<std::string> isas = engine::available_isas();
  Finding f{"instruction set paths", fmt::format("{}", fmt::join(isas, ", "))};
  std::string chosen = isas.front();
  if (const char* forced = std::getenv("EVALRUN_ISA"); forced != nullptr && *forced != '\0') {
    try {
      check_isa(forced);
      chosen = fmt::format("{} (EVALRUN_ISA)", forced);
      f.level = forced == isas.front() ? Level::kOk : Level::kNote;
    } catch (const base::Error& error) {
      chosen = "none: " + error.message();
      f.level = Level::kProblem;
      f.hint = "unset EVALRUN_ISA or name one of these";
    }
  }
  f.value += "; chosen: " + chosen;
  out.push_back(std::move(f));
}

int count_problems(const Findings& findings) {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(), [](const Finding& f) {
    return f.level == Level::kProblem;
  }));
}

void print_findings(const Findings& findings, bool json) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  const int problems = count_problems(findings);
  for (const Finding& f : findings) {
    array.push_back(
        {{"name", f.name}, {"level", to_string(f.level)}, {"value", f.value}, {"hint", f.hint}});
    rows.push_back({to_string(f.level), f.name, f.value + (f.hint.empty() ? "" : " - " + f.hint)});
  }
  if (json) {
    print_json_document({{"ok", problems == 0}, {"checks", array}});
  } else {
    print_line(aligned_table({"", "what", "found"}, rows));
    print_line(problems == 0 ? "\nfit to measure" : fmt::format("\n{} problems", problems));
  }
}

}  // namespace evalrun::cli
