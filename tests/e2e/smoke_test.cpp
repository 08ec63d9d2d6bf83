// A suite from the command line to the table.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "tests/e2e/program.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kPrompts = 6, kMaxNew = 32;

// Columns of the Markdown tables that hold times or what the process needed; all others are the
// same on every machine.
bool is_time_column(const std::string& header) {
  for (const char* part :
       {"speedup", "tok/s", "T(n)", "+ draft", "overhead", "residual", "bandwidth", "peak memory"})
    if (header.find(part) != std::string::npos) return true;
  return false;
}

// The tables' lines with every such figure replaced by '#'.
std::string mask_times(const std::string& markdown) {
  std::string out;
  std::vector<bool> masked;  // of the table at hand
  for (const std::string& line : base::split(markdown, '\n')) {
    if (line.empty() || line[0] != '|') {
      masked.clear();
      continue;
    }
    if (line.find("---") != std::string::npos) continue;  // as wide as the times happen to be
    const std::vector<std::string> cells = base::split(line, '|');
    const bool is_head = masked.empty();
    if (is_head)
      for (const std::string& cell : cells) masked.push_back(is_time_column(cell));
    for (size_t i = 1; i + 1 < cells.size(); ++i) {
      const std::string cell(base::trim(cells[i]));
      out += "| " + (!is_head && masked[i] && cell != "-" ? "#" : cell) + " ";
    }
    out += "|\n";
  }
  return out;
}

class Smoke : public ::testing::Test {
 protected:
  // One run for all cases: the folder lives as long as the suite of tests.
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    write_prompts(*folder_, kPrompts);
    first_ = new ProgramResult(
        run_evalrun(*folder_, run_arguments(kMaxNew, {"--label", "first", "--format", "md"})));
  }
  static void TearDownTestSuite() {
    delete first_;
    delete folder_;
  }
  void SetUp() override { ASSERT_EQ(first_->exit_code, 0) << first_->err; }
  static TempFolder* folder_;
  static ProgramResult* first_;
};
TempFolder* Smoke::folder_ = nullptr;
ProgramResult* Smoke::first_ = nullptr;

TEST_F(Smoke, TableMatchesGolden) {
  const std::string table = mask_times(first_->out);
  const std::string golden = base::read_file(EVALRUN_TEST_DATA "/golden/e2e_table.md");
  EXPECT_EQ(table, golden) << "if the change is meant, the new golden is:\n"
                           << table << "\nunmasked:\n"
                           << first_->out;
}

TEST_F(Smoke, JsonHasTheDocumentedKeys) {
  const ProgramResult report =
      run_evalrun(*folder_, {"report", "first", "--db", "r.db", "--format", "json"});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  const json rows = json::parse(report.out);
  ASSERT_EQ(rows.size(), 3u);
  for (const json& row : rows)
    for (const char* key : {"model",
                            "method",
                            "dataset",
                            "n_prompts",
                            "samples",
                            "speedup",
                            "speedup_lo",
                            "speedup_hi",
                            "tok_s",
                            "tau",
                            "accepted_per_step",
                            "de",
                            "alpha_draft",
                            "alpha_share",
                            "identical_share",
                            "steps",
                            "emitted",
                            "t_ratio",
                            "draft_share",
                            "overhead",
                            "residual",
                            "dtype",
                            "isa",
                            "device",
                            "lossless",
                            "quality"})
      EXPECT_TRUE(row.contains(key)) << key;
}

TEST_F(Smoke, AccountingHolds) {
  const ProgramResult report =
      run_evalrun(*folder_, {"report", "first", "--db", "r.db", "--format", "json"});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  for (const json& row : json::parse(report.out)) {
    EXPECT_EQ(row["n_prompts"], kPrompts);
    // Without a stop token every answer has kMaxNew tokens, the first of them from the prefill.
    EXPECT_EQ(row["emitted"].get<double>(), kPrompts * (kMaxNew - 1));
    EXPECT_EQ(row["identical_share"].get<double>(), 1.0);
    const auto method = row["method"].get<std::string>();
    if (method.rfind("ar", 0) == 0) {
      EXPECT_EQ(row["tau"].get<double>(), 1.0) << method;
      EXPECT_EQ(row["steps"].get<double>(), kPrompts * (kMaxNew - 1)) << method;
    } else {
      EXPECT_GT(row["tau"].get<double>(), 1.0) << "no lookup draft was ever accepted";
    }
  }
  EXPECT_EQ(query_value(folder_->file("r.db"), "SELECT count(*) FROM v_accounting"), "0");
}

TEST_F(Smoke, ResultsAndMessagesGoToTheirOwnStreams) {
  EXPECT_EQ(first_->out.find("warning"), std::string::npos);
  EXPECT_THAT(first_->out, HasSubstr("pld"));
  EXPECT_THAT(first_->err, HasSubstr("r.db"));
  EXPECT_EQ(first_->err.find("| "), std::string::npos) << "a table on standard error";
}

TEST_F(Smoke, PlanMeasuresNothing) {
  const int before = count_stored(folder_->file("r.db"));
  const ProgramResult plan =
      run_evalrun(*folder_, run_arguments(kMaxNew, {"--label", "other", "--plan"}));
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_FALSE(plan.out.empty());
  EXPECT_EQ(count_stored(folder_->file("r.db")), before);
  EXPECT_EQ(query_value(folder_->file("r.db"), "SELECT count(*) FROM run"), "1");
}

// Every command that lists or checks something runs and says something.
TEST_F(Smoke, CommandsAnswer) {
  const std::vector<std::vector<std::string>> commands = {
      {"--version"},
      {"--help"},
      {"run", "--help"},
      {"list", "methods", "--json"},
      {"list", "tasks"},
      {"list", "evaluators"},
      {"list", "suites"},
      {"list", "metrics"},
      {"list", "runs", "--db", "r.db"},
      {"show", "1", "--db", "r.db"},
      {"compare", "first", "first", "--db", "r.db"},
      {"validate", "prompts.jsonl"},
      {"validate", "r.db"},
      {"data", "list"},
  };
  for (const auto& command : commands) {
    const ProgramResult result = run_evalrun(*folder_, command);
    std::string line;
    for (const std::string& word : command) line += word + " ";
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.err;
    EXPECT_FALSE(result.out.empty()) << line;
  }
}

TEST_F(Smoke, MethodsHaveTheDocumentedKeys) {
  const ProgramResult list = run_evalrun(*folder_, {"list", "methods", "--json"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  for (const json& method : json::parse(list.out))
    for (const char* key : {"name", "lossless", "available", "needs", "params"})
      EXPECT_TRUE(method.contains(key)) << key;
}

TEST_F(Smoke, GenerateTokenizePerplexity) {
  folder_->write("texts.jsonl", "{\"text\": \"the cat sat\"}\n");
  const ProgramResult ids =
      run_evalrun(*folder_, {"tokenize", "-m", tiny_model(), "--in", "texts.jsonl"});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_GT(json::parse(ids.out)["ids"].size(), 0u);

  folder_->write("in.jsonl", "{\"id\": 7, \"prompt\": \"the cat sat on the mat\"}\n");
  const ProgramResult generated =
      run_evalrun(*folder_, {"generate", "-m", tiny_model(), "--in", "in.jsonl", "-n", "24",
                             "--methods", "ar,pld", "--top-logits", "3", "--ignore-eos"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  std::set<std::string> tokens;
  int lines = 0;
  for (const std::string& line : base::split(generated.out, '\n')) {
    if (line.empty()) continue;
    const json answer = json::parse(line);
    EXPECT_EQ(answer["id"], 7);
    EXPECT_EQ(answer["tokens"].size(), 24u);
    ASSERT_EQ(answer["top"].size(), 24u);
    for (size_t i = 0; i < 24; ++i) EXPECT_EQ(answer["top"][i][0][0], answer["tokens"][i]);
    tokens.insert(answer["tokens"].dump());
    ++lines;
  }
  EXPECT_EQ(lines, 2);
  EXPECT_EQ(tokens.size(), 1u) << "PLD and AR differ";

  folder_->write("text.txt", "the cat sat on the mat and then it ran far away");
  const ProgramResult perplexity =
      run_evalrun(*folder_, {"perplexity", "-m", tiny_model(), "--file", "text.txt"});
  ASSERT_EQ(perplexity.exit_code, 0) << perplexity.err;
  EXPECT_GT(json::parse(perplexity.out)["perplexity"].get<double>(), 1.0);
}

}  // namespace
}  // namespace evalrun::tests
