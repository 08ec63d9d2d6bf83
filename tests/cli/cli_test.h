// What the tests of the commands share.
#pragma once
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "tests/e2e/program.h"

namespace evalrun::tests {

using nlohmann::json;

inline std::string tiny_gguf() { return EVALRUN_TEST_DATA "/models/tiny-llama.gguf"; }
inline std::string other_vocabulary() { return EVALRUN_TEST_DATA "/models/tiny-qwen3"; }

// One JSON value per line of output.
inline std::vector<json> parse_lines(const std::string& text) {
  std::vector<json> values;
  for (const std::string& line : base::split(text, '\n'))
    if (!line.empty()) values.push_back(json::parse(line));
  return values;
}

// An error as a user should see one: the documented code, what is wrong by name, one screen,
// nothing on standard output.
inline void expect_refused(const ProgramResult& result, int code, const std::string& named) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr("error: "));
  EXPECT_THAT(result.err, ::testing::HasSubstr(named));
  EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("internal error")));
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 24) << result.err;
  EXPECT_EQ(result.out, "");
}

// A folder of its own for each test.
class CommandTest : public ::testing::Test {
 protected:
  ProgramResult run(std::vector<std::string> arguments) {
    return run_evalrun(folder_, std::move(arguments));
  }
  // With `input` on standard input.
  ProgramResult run_with_input(const std::vector<std::string>& arguments,
                               const std::string& input) {
    folder_.write("input", input);
    std::string line;
    for (const std::string& word : evalrun_command(arguments)) line += "'" + word + "' ";
    return run_command_in(folder_, {"sh", "-c", line + "< input"});
  }
  TempFolder folder_;
};

}  // namespace evalrun::tests
