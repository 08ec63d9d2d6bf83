// A check as CI systems show one: cases that pass, fail or warn, as JUnit XML and for GitHub
// Actions. What a case is, the command decides.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace evalrun::reports {

enum class CiState { kPassed, kFailed, kWarned };  // a warning is a skipped test in JUnit

struct CiCase {
  std::string name;  // the same from run to run; a repeated one is numbered when written
  CiState state = CiState::kPassed;
  std::string type;               // class of what is not passed: "regression", "environment", ...
  std::string text;               // why; any text
  std::optional<double> seconds;  // where a case was measured by itself
};

struct CiReport {
  std::string name;     // "evalrun check"
  std::string summary;  // one line
  std::string started;  // UTC, ISO 8601; "" = unknown
  double seconds = 0;   // all of it
  std::vector<std::pair<std::string, std::string>> properties;
  std::vector<CiCase> cases;
};

// <testsuites> with one <testsuite>; well-formed for any text. The attributes are those that
// Jenkins, GitLab and the usual GitHub actions read.
std::string junit_xml(const CiReport& report);

// A heading, the line and a table in Markdown, for the file that $GITHUB_STEP_SUMMARY names.
std::string github_summary(const CiReport& report);
// One workflow command (::error or ::warning) for every case that did not pass.
std::vector<std::string> github_commands(const CiReport& report);

}  // namespace evalrun::reports
