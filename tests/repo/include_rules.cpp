#include "tests/repo/include_rules.h"

#include <algorithm>
#include <array>
#include <regex>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::tests {
namespace {

// `path` is `place` or lies under it.
bool is_under(std::string_view path, std::string_view place) {
  return path.substr(0, place.size()) == place &&
         (path.size() == place.size() || path[place.size()] == '/');
}

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Headers that CMake writes into the build folder.
bool is_generated(std::string_view header) { return header == "build_commit.h"; }

// The rule with the longest matching folder, nullptr when no rule covers the path.
const IncludeRule* rule_of(std::string_view path) {
  const IncludeRule* best = nullptr;
  for (const IncludeRule& rule : include_rules())
    if (is_under(path, rule.folder) &&
        (best == nullptr || rule.folder.size() > best->folder.size()))
      best = &rule;
  return best;
}

}  // namespace

const std::vector<IncludeRule>& include_rules() {
  static const std::vector<IncludeRule> rules = {
      {"engine/base", {}, {"fmt", "nlohmann", "OpenSSL"}},
      {"engine/formats", {}, {"fmt", "nlohmann"}},
      {"engine/tokenizer", {"engine/formats"}, {"fmt", "nlohmann", "PCRE2", "utf8proc"}},
      {"engine/model", {"engine/formats", "engine/tokenizer"}, {"fmt", "nlohmann", "xxHash"}},
      {"engine/cuda", {"engine"}, {"fmt", "CUDA"}},
      {"engine", {}, {"fmt"}},
      {"methods", {"engine", "results/records.h"}, {"fmt", "divsufsort"}},
      {"datasets", {}, {"fmt", "nlohmann", "utf8proc", "zlib", "curl"}},
      {"evaluators", {"datasets", "results/records.h"}, {"fmt", "nlohmann", "re2", "curl"}},
      {"evaluators/sandbox", {}, {"fmt", "seccomp"}},
      // A program of its own, run inside the sandbox.
      {"evaluators/sandbox/box_init.cpp", {}, {}},
      {"results", {}, {"fmt", "nlohmann", "SQLite"}},
      {"reports", {"results"}, {"fmt", "nlohmann"}},
      {"runners",
       {"engine", "methods", "datasets", "evaluators", "results"},
       {"fmt", "nlohmann", "spdlog"}},
      {"runners/cli",
       {"engine", "methods", "datasets", "evaluators", "results", "reports", "runners"},
       {"fmt", "nlohmann", "spdlog", "CLI11"}},
      {"tests",
       {"engine", "methods", "datasets", "evaluators", "results", "reports", "runners"},
       {"fmt", "nlohmann", "SQLite", "zlib", "OpenSSL", "GoogleTest", "Google Benchmark"}},
      {"tests/gpu",
       {"engine", "methods", "datasets", "evaluators", "results", "reports", "runners", "tests"},
       {"fmt", "nlohmann", "SQLite", "GoogleTest", "CUDA", "Boost"}},
  };
  return rules;
}

std::string third_party_of(std::string_view header) {
  static const std::vector<std::pair<std::string, std::string>> prefixes = {
      {"fmt/", "fmt"},          {"nlohmann/", "nlohmann"},  {"openssl/", "OpenSSL"},
      {"pcre2.h", "PCRE2"},     {"utf8proc.h", "utf8proc"}, {"xxhash.h", "xxHash"},
      {"zlib.h", "zlib"},       {"curl/", "curl"},          {"re2/", "re2"},
      {"sqlite3.h", "SQLite"},  {"spdlog/", "spdlog"},      {"CLI/", "CLI11"},
      {"gtest/", "GoogleTest"}, {"gmock/", "GoogleTest"},   {"benchmark/", "Google Benchmark"},
      {"cuda", "CUDA"},         {"cublas", "CUDA"},         {"nvtx3/", "CUDA"},
      {"mma.h", "CUDA"},        {"seccomp.h", "seccomp"},   {"divsufsort", "divsufsort"},
      {"boost/", "Boost"},
  };
  for (const auto& [prefix, library] : prefixes)
    if (header.substr(0, prefix.size()) == prefix) return library;
  // POSIX, Linux and compiler headers; C++ headers have neither a dot nor a slash.
  static const std::array<std::string_view, 17> system = {
      "cpuid.h",   "dlfcn.h", "errno.h",  "fcntl.h",  "immintrin.h", "poll.h",
      "pthread.h", "sched.h", "signal.h", "spawn.h",  "stdlib.h",    "unistd.h",
      "dirent.h",  "grp.h",   "stdio.h",  "string.h", "time.h"};
  const bool known = header.find_first_of("./") == std::string_view::npos ||
                     is_under(header, "sys") || is_under(header, "linux") ||
                     is_under(header, "arpa") || is_under(header, "sanitizer") ||
                     is_under(header, "netinet") ||
                     std::find(system.begin(), system.end(), header) != system.end();
  return known ? "" : "unknown";
}

std::vector<std::string> check_includes(const std::string& path, std::string_view text) {
  const IncludeRule* rule = rule_of(path);
  if (rule == nullptr) return {path + ": no include rule covers this folder"};
  static const std::regex include_line(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<std::string> breaches;
  int number = 0;
  for (const std::string& line : base::split(text, '\n')) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, include_line)) continue;
    const std::string target = match[2];
    std::string why;
    if (match[1] == "<") {
      const std::string library = third_party_of(target);
      if (library == "unknown")
        why = fmt::format("<{}> is not a library we know", target);
      else if (!library.empty() && !contains(rule->third_party, library))
        why = fmt::format("{}/ may not use {}", rule->folder, library);
    } else if (!is_generated(target)) {
      // A folder with a stricter entry of its own (engine/base under engine) keeps to that entry.
      const bool allowed = is_under(target, rule->folder) || is_under(target, "engine/base") ||
                           std::any_of(rule->ours.begin(), rule->ours.end(),
                                       [&](const auto& place) { return is_under(target, place); });
      if (target.find('/') == std::string::npos || target.find("..") != std::string::npos)
        why = fmt::format("\"{}\" must be written from the root of the tree", target);
      else if (!allowed)
        why = fmt::format("{}/ may not include \"{}\"", rule->folder, target);
    }
    if (!why.empty()) breaches.push_back(fmt::format("{}:{}: {}", path, number, why));
  }
  return breaches;
}

}  // namespace evalrun::tests
