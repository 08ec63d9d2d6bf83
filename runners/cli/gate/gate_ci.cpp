#include "runners/cli/gate/gate_ci.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/base/text.h"
#include "runners/cli/output.h"
#include "runners/machine/build_info.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;
using reports::CiCase;
using reports::CiReport;
using reports::CiState;

constexpr const char* kSummaryVariable = "GITHUB_STEP_SUMMARY";

std::string summary_file() {
  const char* path = std::getenv(kSummaryVariable);
  return path == nullptr ? "" : path;
}

// Other steps write to this file, too: only ever appended to.
void append(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path, std::ios::app | std::ios::binary);
  out << text << std::flush;
  if (!out)
    throw base::data_error(path, "", fmt::format("cannot be written: {}", std::strerror(errno)),
                           fmt::format("{} names it", kSummaryVariable));
}

// Of a model's path what is the same on every machine.
std::string model_name(const std::string& path) {
  const std::filesystem::path whole(path);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::string class_of(reports::Outcome outcome) {
  switch (outcome) {
    case reports::Outcome::kCorrectness:
      return failure_class(ExitCode::kCorrectness);
    case reports::Outcome::kIncompatible:
      return failure_class(ExitCode::kNoBaseline);
    case reports::Outcome::kRegression:
      return failure_class(ExitCode::kRegression);
    case reports::Outcome::kInconclusive:
      return failure_class(ExitCode::kInconclusive);
    default:
      return "";
  }
}

CiCase make_case(const std::string& name, const std::string& type, const std::string& text,
                 const std::vector<std::string>& failing) {
  CiCase c;
  c.name = name;
  c.type = type;
  c.text = text;
  if (!type.empty())
    c.state = std::find(failing.begin(), failing.end(), type) != failing.end() ? CiState::kFailed
                                                                               : CiState::kWarned;
  return c;
}

CiReport start_report(const std::string& name) {
  CiReport report;
  report.name = name;
  return report;
}

}  // namespace

void CiOptions::add(CLI::App& app) {
  app.add_option("--junit", junit, "File for the verdict as JUnit XML");
  app.add_flag("--github", github,
               "For GitHub Actions: summary to the file GITHUB_STEP_SUMMARY names, annotations to "
               "standard output");
}

void CiOptions::check(const GlobalOptions& global) const {
  if (!github) return;
  if (summary_file().empty())
    throw base::usage_error(
        fmt::format("--github: the variable {} is not set: this is no step of a GitHub job",
                    kSummaryVariable),
        "leave --github out, or set the variable to the file that the summary is appended to");
  if (global.json)
    throw base::usage_error("--github and --json both write to standard output",
                            "--verdict FILE takes the JSON");
}

void CiOptions::write(const CiReport& report) const {
  if (!junit.empty()) base::write_file_atomic(junit, reports::junit_xml(report));
  if (!github) return;
  append(summary_file(), reports::github_summary(report));
  for (const std::string& command : reports::github_commands(report)) print_line(command);
}

CiReport ci_report(const GateOutcome& outcome, const std::vector<std::string>& failing) {
  const reports::GateResult& result = outcome.result;
  CiReport report = start_report("evalrun check");
  report.summary = gate_line(outcome);
  report.started = result.current.started;
  const bool measured = outcome.run_id != 0;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) report.properties.emplace_back(name, value);
  };
  add("commit", measured ? result.current.commit : runners::build_info().id);
  if (const auto path = result.current.environment.find("model_path");
      path != result.current.environment.end())
    add("model", model_name(path->second));
  add("suite", result.current.suite);
  add("baseline", outcome.baseline);
  add("baseline_commit", result.base.commit);
  if (measured) add("run", std::to_string(outcome.run_id));
  add("exit_code", std::to_string(static_cast<int>(outcome.code)));

  const std::string overruled =
      outcome.code == result.code ? "" : failure_class(result.code);  // by what `note` tells
  for (const reports::GateCheck& v : result.checks) {
    std::string type = class_of(v.outcome), text = v.reason;
    if (!type.empty() && type == overruled) {
      type = failure_class(outcome.code);
      text = outcome.note + "\n" + text;
    }
    report.cases.push_back(
        make_case(v.method.empty() ? v.metric : fmt::format("{} {}", v.metric, v.method), type,
                  text, failing));
  }
  if (result.checks.empty())
    report.cases.push_back(make_case("baseline", failure_class(outcome.code),
                                     result.summary + "\n" + outcome.note, failing));
  return report;
}

CiReport ci_report(const std::vector<DrillOutcome>& drills, const std::string& suite,
                   const std::string& model_path) {
  CiReport report = start_report("evalrun check --self-test");
  report.properties = {{"commit", runners::build_info().id},
                       {"model", model_name(model_path)},
                       {"suite", suite},
                       {"baseline", "self-test"}};
  size_t passed = 0;
  for (const DrillOutcome& d : drills) {
    passed += d.passed();
    const std::string text =
        fmt::format("exit code {}, expected {}; {}", static_cast<int>(d.gate.code),
                    static_cast<int>(d.drill.expected), gate_line(d.gate));
    report.cases.push_back(
        make_case(d.drill.name, d.passed() ? "" : "self-test", text, {"self-test"}));
    report.cases.back().seconds = d.seconds;
  }
  report.summary =
      fmt::format("check --self-test: {} of {} drills ended as they should", passed, drills.size());
  return report;
}

CiReport ci_report(const std::exception& error, const std::string& baseline) {
  const auto* known = dynamic_cast<const base::Error*>(&error);
  const std::string name = known != nullptr ? failure_class(known->code()) : "";
  CiReport report = start_report("evalrun check");
  report.summary = "check: no verdict, an error ended it";
  report.properties = {{"commit", runners::build_info().id}, {"baseline", baseline}};
  report.cases.push_back(
      make_case("measurement", name.empty() ? "error" : name, error.what(), {"error", name}));
  return report;
}

}  // namespace evalrun::cli
