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

// A place "X" is the room X alone (or that file), "X/" is X with all the rooms in it.
const std::vector<IncludeRule>& include_rules() {
  static const std::vector<IncludeRule> rules = {
      {"engine/base", {}, {"Boost", "fmt", "nlohmann", "OpenSSL"}},
      {"engine/net", {}, {"fmt", "curl"}},
      {"engine/formats", {}, {"fmt", "nlohmann"}},
      {"engine/tokenizer/subword", {}, {"fmt", "utf8proc"}},
      {"engine/tokenizer", {"engine/tokenizer/subword"}, {"fmt", "nlohmann", "PCRE2", "utf8proc"}},
      {"engine/tokenizer/jinja/values", {}, {"fmt", "utf8proc"}},
      {"engine/tokenizer/jinja/syntax", {"engine/tokenizer/jinja/values"}, {"fmt"}},
      {"engine/tokenizer/jinja",
       {"engine/tokenizer/jinja/values", "engine/tokenizer/jinja/syntax"},
       {"fmt", "utf8proc"}},
      {"engine/tokenizer/chat",
       {"engine/tokenizer/jinja", "engine/tokenizer/jinja/values"},
       {"fmt"}},
      {"engine/tokenizer/files",
       {"engine/tokenizer", "engine/tokenizer/subword", "engine/formats"},
       {"fmt", "nlohmann"}},
      {"engine/model",
       {"engine/formats", "engine/tokenizer", "engine/tokenizer/chat"},
       {"fmt", "nlohmann", "xxHash"}},
      // devices.h of the CUDA runtime is a plain list of devices, without a CUDA header.
      {"engine",
       {"engine/model", "engine/cpu/kernels/arith.h", "engine/cuda/runtime/devices.h"},
       {"fmt"}},
      // They choose among devices, so they know all of them; nothing but programs includes them.
      {"engine/devices.cpp",
       {"engine", "engine/model", "engine/cpu/kernels", "engine/cuda/runtime"},
       {"fmt"}},
      {"engine/cost", {"engine", "engine/cpu", "engine/model"}, {"fmt"}},
      {"engine/cpu/kernels", {"engine/formats", "engine/model"}, {}},
      {"engine/cpu", {"engine", "engine/cpu/kernels", "engine/model"}, {"fmt"}},
      {"engine/cuda/runtime", {"engine"}, {"fmt", "CUDA"}},
      {"engine/cuda/kernels",
       {"engine", "engine/model", "engine/cpu/kernels/arith.h", "engine/cpu/kernels/fp8.h",
        "engine/cuda/runtime"},
       {"fmt", "CUDA"}},
      {"engine/cuda",
       {"engine", "engine/model", "engine/cuda/runtime", "engine/cuda/kernels"},
       {"fmt", "CUDA"}},
      {"methods", {"engine", "engine/cost", "engine/tokenizer", "results/records.h"}, {"fmt"}},
      {"methods/corpus",
       {"engine/formats", "engine/model", "engine/tokenizer"},
       {"fmt", "divsufsort"}},
      {"methods/lookup", {"methods", "methods/corpus", "methods/heads"}, {"fmt"}},
      {"methods/heads", {"methods", "engine", "engine/formats", "engine/model"}, {"fmt"}},
      {"methods/masks",
       {"methods", "methods/heads", "engine", "engine/model", "engine/tokenizer"},
       {"fmt"}},
      {"methods/model_draft",
       {"methods", "methods/heads", "methods/lookup", "engine", "engine/model", "engine/tokenizer"},
       {"fmt"}},
      {"datasets", {}, {"fmt", "nlohmann", "utf8proc", "zlib", "curl"}},
      {"datasets/sources", {"datasets"}, {"fmt", "nlohmann"}},
      {"evaluators", {"datasets", "results/records.h"}, {"fmt", "nlohmann", "re2"}},
      // The list of evaluators, and their vectors.
      {"evaluators/registry.cpp", {"evaluators/"}, {"fmt"}},
      {"evaluators/self_test.cpp", {"evaluators/"}, {"fmt"}},
      {"evaluators/text", {"evaluators"}, {"fmt"}},
      {"evaluators/judge", {"datasets", "engine/net"}, {"fmt", "nlohmann", "re2"}},
      {"evaluators/programs",
       {"evaluators", "evaluators/programs/support", "evaluators/sandbox", "datasets"},
       {"fmt", "nlohmann", "re2"}},
      {"evaluators/programs/support", {}, {}},
      {"evaluators/sandbox", {}, {"fmt", "seccomp"}},
      // A program of its own, run inside the sandbox.
      {"evaluators/sandbox/box_init.cpp", {}, {}},
      {"results", {}, {"fmt", "nlohmann", "SQLite"}},
      {"results/merge", {"results"}, {"fmt", "nlohmann", "SQLite"}},
      {"reports", {}, {"fmt", "nlohmann"}},
      {"reports/document", {"reports"}, {"fmt", "nlohmann"}},
      {"reports/machines", {"results"}, {"fmt"}},
      {"reports/data", {"reports/machines", "results"}, {"fmt", "nlohmann"}},
      {"reports/figures",
       {"reports", "reports/document", "reports/data", "reports/machines", "reports/predict",
        "results"},
       {"fmt", "nlohmann"}},
      {"reports/table",
       {"reports", "reports/document", "reports/data", "reports/figures", "reports/machines",
        "results"},
       {"fmt", "nlohmann"}},
      {"reports/compare",
       {"reports", "reports/document", "reports/data", "results"},
       {"fmt", "nlohmann"}},
      {"reports/gate",
       {"reports", "reports/compare", "reports/document", "reports/data", "results"},
       {"fmt", "nlohmann"}},
      {"reports/gate/simulated", {"reports/gate", "reports/data", "results"}, {"fmt"}},
      {"reports/predict",
       {"reports", "reports/document", "reports/data", "results"},
       {"fmt", "nlohmann"}},
      {"reports/claims",
       {"reports", "reports/document", "reports/figures", "reports/table"},
       {"fmt", "nlohmann"}},
      {"reports/load",
       {"reports", "reports/document", "reports/data", "reports/figures", "results"},
       {"fmt", "nlohmann"}},
      {"reports/html",
       {"reports", "reports/document", "reports/data", "reports/figures", "reports/table",
        "reports/claims", "results"},
       {"fmt", "nlohmann"}},
      {"reports/papers",
       {"reports", "reports/document", "reports/data", "reports/figures", "reports/table",
        "reports/claims", "results"},
       {"fmt", "nlohmann"}},
      {"runners/machine", {"engine/", "results"}, {"fmt", "nlohmann", "spdlog"}},
      {"runners/plan",
       {"runners/endpoints", "runners/machine", "engine/", "methods/", "datasets", "evaluators",
        "results"},
       {"fmt", "nlohmann", "spdlog"}},
      {"runners/score", {"datasets", "evaluators/", "results"}, {"fmt", "nlohmann", "spdlog"}},
      {"runners/measure",
       {"runners/endpoints", "runners/machine", "runners/plan", "runners/score", "engine/",
        "methods/", "evaluators/", "results"},
       {"fmt", "nlohmann", "spdlog"}},
      {"runners/endpoints", {"engine/", "results/records.h"}, {"fmt", "nlohmann", "spdlog"}},
      {"runners/serve",
       {"runners/machine", "runners/measure", "runners/plan", "engine/", "methods/",
        "results/records.h"},
       {"fmt", "nlohmann", "Boost"}},
      {"runners/load",
       {"runners/endpoints", "runners/plan", "runners/measure", "engine/", "results"},
       {"fmt", "nlohmann", "spdlog"}},
      {"runners/cluster",
       {"runners/machine", "runners/plan", "runners/measure", "engine/", "results",
        "results/merge"},
       {"fmt", "nlohmann", "spdlog"}},
      {"runners/train", {"engine/", "methods/"}, {"fmt", "nlohmann", "spdlog"}},
      {"runners/verify",
       {"runners/endpoints", "runners/machine", "runners/plan", "runners/measure", "engine/",
        "methods/", "results"},
       {"fmt", "nlohmann", "spdlog"}},
      {"runners/verify/endpoints",
       {"runners/verify", "runners/endpoints", "runners/machine", "runners/plan", "runners/measure",
        "engine/", "methods/", "results"},
       {"fmt", "nlohmann", "spdlog"}},
      {"runners/cli",
       {"engine/", "methods/", "datasets", "evaluators/", "results/", "reports/", "runners/machine",
        "runners/measure", "runners/plan", "runners/score", "runners/serve", "runners/train",
        "runners/load", "runners/endpoints", "runners/verify/", "runners/cluster"},
       {"fmt", "nlohmann", "spdlog", "CLI11"}},
  };
  static const std::vector<IncludeRule> all = [] {
    std::vector<IncludeRule> list = rules;
    const IncludeRule frame = list.back();  // every room of commands may do what the frame may
    for (const char* room : {"measure", "results", "shell", "text", "cluster", "gate"}) {
      IncludeRule rule = frame;
      rule.folder = fmt::format("runners/cli/{}", room);
      rule.ours.push_back("runners/cli");
      list.push_back(rule);
    }
    for (IncludeRule& rule : list)
      if (rule.folder == "runners/cli/gate" || rule.folder == "runners/cli/cluster")
        rule.ours.push_back("runners/cli/results");
    list.push_back({"runners/cluster/mpi", {"runners/cluster"}, {"MPI"}});
    list.push_back(
        {"tests",
         {"engine/", "methods/", "datasets/", "evaluators/", "results/", "reports/", "runners/",
          "tests/"},
         {"fmt", "nlohmann", "SQLite", "zlib", "OpenSSL", "GoogleTest", "Google Benchmark"}});
    list.push_back({"tests/gpu",
                    list.back().ours,
                    {"fmt", "nlohmann", "SQLite", "GoogleTest", "CUDA", "Boost"}});
    return list;
  }();
  return all;
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
      {"boost/", "Boost"},      {"mpi.h", "MPI"},
  };
  for (const auto& [prefix, library] : prefixes)
    if (header.substr(0, prefix.size()) == prefix) return library;
  // POSIX, Linux and compiler headers; C++ headers have neither a dot nor a slash.
  static const std::array<std::string_view, 19> system = {
      "cpuid.h", "dlfcn.h",  "errno.h", "fcntl.h",  "immintrin.h", "poll.h",   "pthread.h",
      "sched.h", "signal.h", "spawn.h", "stdlib.h", "unistd.h",    "dirent.h", "fnmatch.h",
      "grp.h",   "malloc.h", "stdio.h", "string.h", "time.h"};
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
      // engine/base is everybody's; otherwise the same room, or a room that the rule names.
      const IncludeRule* of_target = rule_of(target);
      const std::string room = of_target == nullptr ? "" : of_target->folder;
      const bool allowed =
          room == rule->folder || room == "engine/base" ||
          std::any_of(rule->ours.begin(), rule->ours.end(), [&](const std::string& place) {
            return place.ends_with('/') ? is_under(target, place.substr(0, place.size() - 1))
                                        : place == room || place == target;
          });
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
