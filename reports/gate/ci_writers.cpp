#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "reports/document/document.h"
#include "reports/document/escape.h"
#include "reports/gate/ci_report.h"

namespace evalrun::reports {
namespace {

const char* to_string(CiState state) {
  switch (state) {
    case CiState::kPassed:
      return "passed";
    case CiState::kFailed:
      return "failed";
    case CiState::kWarned:
      return "warning";
  }
  EVALRUN_CHECK(false, "unknown state {}", static_cast<int>(state));
}

auto count_of(const CiReport& report, CiState state) {
  return std::count_if(report.cases.begin(), report.cases.end(),
                       [&](const CiCase& c) { return c.state == state; });
}

// " name="value""
std::string attribute(const char* name, const std::string& value) {
  return fmt::format(" {}=\"{}\"", name, escape_xml(value));
}

std::string seconds_text(double seconds) { return fmt::format("{:.3f}", seconds); }

std::string junit_case(const CiCase& c, const std::string& classname, const std::string& name) {
  std::string out = "    <testcase" + attribute("classname", classname) + attribute("name", name);
  if (c.seconds) out += attribute("time", seconds_text(*c.seconds));
  out += ">\n";
  const std::string text = escape_xml(c.text);
  if (c.state == CiState::kFailed)
    out += "      <failure" + attribute("type", c.type) + attribute("message", c.text) + ">" +
           text + "</failure>\n";
  else if (c.state == CiState::kWarned)
    out += "      <skipped" + attribute("message", c.type + ": " + c.text) + "/>\n";
  else if (!text.empty())
    out += "      <system-out>" + text + "</system-out>\n";
  return out + "    </testcase>\n";
}

// The runner reads a command to the end of the line, and properties to the next comma or colon.
std::string escape_command(const std::string& text, bool is_property) {
  std::string out;
  for (const char c : text) {
    const bool ends_it =
        c == '%' || c == '\r' || c == '\n' || (is_property && (c == ':' || c == ','));
    out += ends_it ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string junit_xml(const CiReport& report) {
  std::string classname = report.name;
  std::replace(classname.begin(), classname.end(), ' ', '.');  // shown as a package and a class
  const std::string counts =
      attribute("name", report.name) +
      fmt::format(" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"", report.cases.size(),
                  count_of(report, CiState::kFailed), count_of(report, CiState::kWarned)) +
      attribute("time", seconds_text(report.seconds));
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites" + counts +
                    ">\n  <testsuite" + counts;
  if (!report.started.empty()) out += attribute("timestamp", report.started);
  out += ">\n    <properties>\n";
  for (const auto& [name, value] : report.properties)
    out += "      <property" + attribute("name", name) + attribute("value", value) + "/>\n";
  out += "    </properties>\n";
  std::map<std::string, int> seen;  // readers keep one of two cases with the same name
  for (const CiCase& c : report.cases) {
    const int n = ++seen[c.name];
    out += junit_case(c, classname, n > 1 ? fmt::format("{} ({})", c.name, n) : c.name);
  }
  out += "    <system-out>" + escape_xml(report.summary) + "</system-out>\n";
  return out + "  </testsuite>\n</testsuites>\n";
}

std::string github_summary(const CiReport& report) {
  Document d{.name = "check"};
  d.heading(report.name);
  d.paragraph(report.summary);
  Table table{.columns = {{.name = "case", .words = true},
                          {.name = "state", .words = true},
                          {.name = "why", .words = true}}};
  for (const CiCase& c : report.cases)
    table.rows.push_back(
        {c.name,
         c.type.empty() ? to_string(c.state) : fmt::format("{}: {}", to_string(c.state), c.type),
         c.text});
  d.table(std::move(table));
  std::string facts;
  for (const auto& [name, value] : report.properties)
    facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", name, value);
  d.paragraph(facts);
  return render(d, Format::kMarkdown);
}

std::vector<std::string> github_commands(const CiReport& report) {
  std::vector<std::string> commands;
  for (const CiCase& c : report.cases) {
    if (c.state == CiState::kPassed) continue;
    commands.push_back(fmt::format("::{} title={}::{}",
                                   c.state == CiState::kFailed ? "error" : "warning",
                                   escape_command(fmt::format("{}: {}", report.name, c.type), true),
                                   escape_command(fmt::format("{}: {}", c.name, c.text), false)));
  }
  return commands;
}

}  // namespace evalrun::reports
