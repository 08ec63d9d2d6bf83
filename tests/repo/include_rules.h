// Who may include whom, as a table. The link lists of the CMake files say the same, but a header
// path works without linking, so the #include lines are read too.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::tests {

// Rules of one folder. `folder` covers its subfolders unless a longer entry exists.
struct IncludeRule {
  std::string folder;
  std::vector<std::string> ours;         // folders or single files, besides its own and engine/base
  std::vector<std::string> third_party;  // names out of third_party_of()
};

const std::vector<IncludeRule>& include_rules();

// Library a bracketed include belongs to: "fmt", "SQLite", ...; "" for the C++ and POSIX headers
// any file may use; "unknown" for anything else.
std::string third_party_of(std::string_view header);

// Breaches in one file, each as "path:line: why". `path` is relative to the root and decides the
// rule.
std::vector<std::string> check_includes(const std::string& path, std::string_view text);

}  // namespace evalrun::tests
