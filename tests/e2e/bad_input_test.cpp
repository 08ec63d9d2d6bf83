// Wrong commands, suites, models and files: a documented exit code and a message of one screen that
// names the culprit, and no crash.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void expect_refused(const ProgramResult& result, int code, const std::string& named) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: "));
  EXPECT_THAT(result.err, HasSubstr(named));
  EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 24) << result.err;
  EXPECT_EQ(result.out, "");
}

class BadInput : public ::testing::Test {
 protected:
  BadInput() { write_prompts(folder_, 2); }
  ProgramResult run(const std::vector<std::string>& more) {
    return run_evalrun(folder_, run_arguments(8, more));
  }
  void execute(const std::string& sql) { change_stored(folder_.file("r.db"), sql); }
  TempFolder folder_;
};

TEST_F(BadInput, CommandLine) {
  struct Case {
    std::vector<std::string> arguments;
    std::string named;
  };
  const std::vector<Case> cases = {
      {{"rum"}, "run"},
      {{"run", "--no-such-option"}, "no-such-option"},
      {{"run", "qiuck"}, "quick"},
      {{"run", "-m", tiny_model(), "--methods", "pdl", "--tasks", "samples"}, "pld"},
      {{"run", "-m", tiny_model(), "--methods", "pld:kk=3", "--tasks", "samples"}, "kk"},
      {{"run", "-m", tiny_model(), "--methods", "pld:k=zero", "--tasks", "samples"}, "zero"},
      {{"run", "-m", tiny_model(), "--methods", "slow:10%", "--tasks", "samples"}, "slow"},
      {{"run", "-m", tiny_model(), "--methods", "ar", "--tasks", "gms8k"}, "gsm8k"},
      {{"run", "-m", tiny_model(), "--methods", "ar", "--tasks", "samples", "--device", "gpu"},
       "devices here: cpu"},
      {{"run", "-m", tiny_model(), "--methods", "ar", "--tasks", "samples", "--device", "cuda:77"},
       "device 'cuda:77' cannot be used"},
      {{"run", "-m", tiny_model(), "--methods", "ar", "--tasks", "samples", "--dtype", "f17"},
       "f17"},
      {{"run", "-m", tiny_model(), "--methods", "ar", "--tasks", "samples", "--isa", "mmx"}, "mmx"},
      {{"run", "-m", tiny_model(), "--methods", "sps", "--tasks", "samples"}, "draft"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.named);
    expect_refused(run_evalrun(folder_, c.arguments), 2, c.named);
  }
}

TEST_F(BadInput, SuiteFiles) {
  folder_.write("unknown.json", R"({"methods": ["ar"], "tasks": ["samples"], "max_nwe": 4})");
  expect_refused(run_evalrun(folder_, {"run", "unknown.json", "-m", tiny_model()}), 2, "max_nwe");
  folder_.write("type.json", R"({"methods": ["ar"], "tasks": ["samples"], "max_new": "four"})");
  expect_refused(run_evalrun(folder_, {"run", "type.json", "-m", tiny_model()}), 2, "max_new");
  folder_.write("syntax.json", "{\"methods\": [\"ar\"],,}");
  expect_refused(run_evalrun(folder_, {"run", "syntax.json", "-m", tiny_model()}), 2,
                 "syntax.json");
}

TEST_F(BadInput, Prompts) {
  folder_.write("prompts.jsonl", "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": 2, \"prompt\": \n");
  expect_refused(run({}), 7, "prompts.jsonl: line 2");
  std::string text = "{\"id\": 1, \"chat\": false, \"prompt\": \"";
  for (int i = 0; i < 20000; ++i) text += "cat ";
  folder_.write("prompts.jsonl", text + "\"}\n");
  expect_refused(run({}), 2, "context");
  std::filesystem::remove(folder_.file("prompts.jsonl"));
  expect_refused(run({}), 7, "prompts.jsonl");
}

TEST_F(BadInput, Models) {
  expect_refused(run_evalrun(folder_, {"run", "quick"}), 7, "evalrun data model");
  expect_refused(run_evalrun(folder_, {"run", "quick", "-m", "nowhere.gguf"}), 7, "nowhere.gguf");
  folder_.write("text.gguf", "GGUF? no");
  expect_refused(run_evalrun(folder_, {"run", "quick", "-m", "text.gguf"}), 7, "text.gguf");
  // A folder whose weights stop half-way, and one without its configuration.
  std::filesystem::copy(tiny_model(), folder_.file("half"),
                        std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("half")))
    if (entry.path().extension() == ".safetensors")
      std::filesystem::resize_file(entry.path(), std::filesystem::file_size(entry.path()) / 2);
  expect_refused(run_evalrun(folder_, {"run", "quick", "-m", "half"}), 7, "safetensors");
  std::filesystem::remove(folder_.file("half/config.json"));
  expect_refused(run_evalrun(folder_, {"run", "quick", "-m", "half"}), 7, "config.json");
}

TEST_F(BadInput, ResultFiles) {
  expect_refused(run_evalrun(folder_, {"report", "--db", "none.db"}), 7, "none.db");
  ASSERT_EQ(run({}).exit_code, 0);
  const StoredRun before = read_stored(folder_.file("r.db"));
  expect_refused(run_evalrun(folder_, {"report", "no-such-run", "--db", "r.db"}), 2, "no-such-run");
  const ProgramResult unmeasured =
      run_evalrun(folder_, {"check", "--db", "r.db", "-m", tiny_model(), "--baseline", "none"});
  EXPECT_EQ(unmeasured.exit_code, 3) << unmeasured.err;

  execute("UPDATE meta SET value = 999 WHERE name = 'schema_version'");
  expect_refused(run({}), 7, "999");
  execute("UPDATE meta SET value = 1 WHERE name = 'schema_version'");
  EXPECT_EQ(read_stored(folder_.file("r.db")), before);
  folder_.write("text.db", "no database at all, but long enough to be looked at by a reader\n");
  expect_refused(run_evalrun(folder_, {"report", "--db", "text.db"}), 7, "text.db");
  EXPECT_EQ(folder_.read("text.db").substr(0, 11), "no database");
}

// Somebody else writes for longer than the program waits.
TEST_F(BadInput, LockedDatabase) {
  ASSERT_EQ(run({}).exit_code, 0);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(folder_.file("r.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  expect_refused(run({"--label", "second"}), 7, "locked");
  EXPECT_EQ(sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_EQ(run({"--label", "second"}).exit_code, 0);
}

}  // namespace
}  // namespace evalrun::tests
