// Every header compiles on its own: it includes what it uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "tests/repo/source_tree.h"
#include "tests/sample.h"

namespace evalrun::tests {
namespace {

// Headers in the ordinary sense. *_impl.h is a body that several .cpp files include after their own
// definitions (kernels, once per instruction set): it cannot stand alone and is no interface.
// Headers of the tests are left out: they need the definitions of their own binary.
std::vector<std::string> interface_headers() {
  std::vector<std::string> headers = source_files({".h"});
  std::erase_if(headers, [](const std::string& h) {
    return h.ends_with("_impl.h") || h.starts_with("tests/");
  });
  return headers;
}

// All that changed since this branch left main; a third of those that include one of them, for
// what it no longer brings them; and a tenth of all: each costs one to two seconds. Sources are
// compiled with each change, and name a missing header more often than this does.
std::vector<std::string> headers_to_compile() {
  const auto all = interface_headers();
  const auto changed = changed_files();
  const auto is_changed = [&](const std::string& header) {
    return std::ranges::find(changed, header) != changed.end();
  };
  std::vector<std::string> includers;
  for (const std::string& header : all) {
    const std::string text = base::read_file(absolute(header));
    if (std::ranges::any_of(changed, [&](const std::string& file) {
          return text.find("#include \"" + file + "\"") != text.npos;
        }))
      includers.push_back(header);
  }
  auto chosen = sample(all, all.size() / 10);
  std::ranges::copy(sample(includers, (includers.size() + 5) / 6), std::back_inserter(chosen));
  std::ranges::copy_if(all, std::back_inserter(chosen), is_changed);
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

TEST(Headers, CompileAlone) {
  const auto headers = headers_to_compile();
  ASSERT_GT(headers.size(), 30u);
  std::string list;
  for (const std::string& header : headers) list += header + "\n";
  // Syntax only, no optimisation: about a second each, most of it in third-party headers. Those of
  // engine/cuda with the emulator's runtime, which exists without the CUDA Toolkit.
  const std::string one = fmt::format(
      "{} -std=c++20 -fsyntax-only -I. -Itests/gpu/emulator/include -DEVALRUN_CUDA_EMULATED -x c++ "
      "-include \"$1\" /dev/null || echo \"not alone: $1\"",
      EVALRUN_CXX_COMPILER);
  const unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  const auto result = run_command(
      fmt::format("printf '%s' '{}' | xargs -P {} -I@ sh -c '{}' sh @", list, jobs, one));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.find("not alone: "), std::string::npos) << result.output;
}

std::string_view first_lines(std::string_view text, int n) {
  size_t end = 0;
  for (int i = 0; i < n && end < text.size(); ++i)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return text.substr(0, end);
}

TEST(Headers, HaveGuardAndPurpose) {
  for (const std::string& header : interface_headers()) {
    const std::string text = base::read_file(absolute(header));
    const std::string_view head = first_lines(text, 40);
    EXPECT_EQ(head.rfind("//", 0), 0u)
        << header << ": opens with a comment that says what it is for";
    EXPECT_NE(head.find("#pragma once"), std::string::npos) << header << ": no #pragma once";
  }
}

}  // namespace
}  // namespace evalrun::tests
