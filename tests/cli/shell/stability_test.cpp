// What docs/stability.md promises about commands, JSON and older databases. After a wanted change:
// EVALRUN_UPDATE_GOLDEN=1 bin/cli_test --gtest_filter=Stability.* && git diff tests/data/golden
#include <fmt/format.h>
#include <sqlite3.h>

#include <cstdlib>
#include <set>

#include "engine/base/text.h"
#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = EVALRUN_TEST_DATA "/golden/" + name;
  if (std::getenv("EVALRUN_UPDATE_GOLDEN") != nullptr) base::write_file_atomic(path, text);
  EXPECT_EQ(base::read_file(path), text) << name;
}

// "rows[].speedup" of every key below `value`.
void find_keys(const json& value, const std::string& path, std::set<std::string>& keys) {
  if (value.is_object())
    for (const auto& [key, below] : value.items()) {
      keys.insert(path + key);
      find_keys(below, path + key + ".", keys);
    }
  if (value.is_array())
    for (const json& item : value)
      find_keys(item, (path.empty() ? "" : path.substr(0, path.size() - 1)) + "[].", keys);
}

class Stability : public CommandTest {};

// Every command with its options and their types: none goes or changes unseen.
TEST_F(Stability, CommandsAndOptions) {
  const ProgramResult list = run({"man", "--list"});
  EXPECT_EQ(list.exit_code, 0);
  expect_golden("commands.txt", list.out);
}

TEST_F(Stability, JsonKeys) {
  write_prompts(folder_, 2);
  ASSERT_EQ(run(run_arguments(8, {"--label", "first"})).exit_code, 0);
  ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  folder_.write("text.txt", "the cat sat on the mat and the cat sat there again\n");
  folder_.write("in.jsonl", "{\"prompt\": \"the cat\", \"text\": \"the cat\"}\n");
  folder_.write("own.jsonl", "{\"prompt\": \"the cat\"}\n");
  folder_.write("shape.json",
                R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
                    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                    "vocab_size": 99, "rms_norm_eps": 1e-6, "max_position_embeddings": 400})");
  std::string halves;  // one to choose on, one to judge on
  for (int i = 0; i < 8; ++i)
    halves += fmt::format(R"({{"id": "{}", "turns": ["ab{}cab{}cab{}c"]}})", i, i, i, i) + "\n";
  folder_.write("halves.jsonl", halves);
  const std::string model = tiny_model();
  const std::vector<std::vector<std::string>> commands = {
      {"baseline", "list"},
      {"check", "run:1", "--max-regression", "90%"},
      {"compare", "1", "1"},
      {"cost", "--shape", "shape.json", "--rows", "1", "--rounds", "1", "-t", "1"},
      {"data", "cache"},
      {"data", "list"},
      {"data", "overlap", "in.jsonl", "--tasks", "jsonl:own.jsonl"},
      {"generate", "-m", model, "--in", "in.jsonl", "-n", "4"},
      {"list", "evaluators"},
      {"list", "formats"},
      {"list", "isas"},
      {"list", "methods"},
      {"list", "metrics"},
      {"list", "runs"},
      {"list", "shapes"},
      {"list", "suites"},
      {"list", "tables"},
      {"list", "tasks"},
      {"list", "templates"},
      {"load", "--from", EVALRUN_TEST_DATA "/load/small.jsonl", "--slo", "ttft=50ms"},
      {"merge", "merged.db", "r.db:1"},
      {"perplexity", "-m", model, "--file", "text.txt"},
      {"predict"},
      {"report"},
      {"show", "1"},
      {"show", "run:1"},
      {"tokenize", "-m", model, "--in", "in.jsonl"},
      {"tune", "method", "-m", model, "-t", "1", "-n", "12", "--tasks", "jsonl:halves.jsonl",
       "--methods", "pld"},
      {"tune", "parameters", "-m", model, "-t", "1", "-n", "12", "--task", "jsonl:halves.jsonl",
       "--method", "pld:ngram=2", "--space", "k=1..2"},
      {"validate", "text.txt", "r.db"},
  };
  std::string text;
  for (std::vector<std::string> words : commands) {
    const std::string name = words.size() > 1 && words[1][0] != '-' && words[1] != "text.txt"
                                 ? words[0] + " " + words[1]
                                 : words[0];
    words.insert(words.end(), {"--json", "--db", "r.db"});
    const ProgramResult result = run(words);
    std::set<std::string> keys;
    if (result.out.starts_with("{\"") || json::accept(result.out) == false)
      for (const json& line : parse_lines(result.out)) find_keys(line, "", keys);
    else
      find_keys(json::parse(result.out), "", keys);
    // Whether a tiny model's choice is confirmed is a matter of noise: null then, which has no
    // keys.
    std::set<std::string> confirmed;
    for (const std::string& key : keys)
      if (key.starts_with("confirmed.")) confirmed.insert(key);
    if (!confirmed.empty()) {
      EXPECT_THAT(confirmed,
                  ElementsAre("confirmed.method", "confirmed.prompts", "confirmed.speedup",
                              "confirmed.speedup_hi", "confirmed.speedup_lo"));
    }
    std::erase_if(keys, [&](const std::string& key) { return confirmed.contains(key); });
    for (const std::string& key : keys) text += name + ": " + key + "\n";
  }
  expect_golden("json_keys.txt", text);
}

// What the first cell of a row of a table holds in code spans: "| `a`, `b` | ... |" -> a, b.
std::vector<std::string> code_spans(const std::string& text) {
  std::vector<std::string> spans;
  for (size_t begin = text.find('`'); begin != text.npos; begin = text.find('`', begin)) {
    const size_t end = text.find('`', begin + 1);
    spans.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return spans;
}

// docs/json.md as lines of json_keys.txt. A heading names a command of the list, or several by
// their first word; "a.*" stands for every key below a.
std::set<std::string> documented_keys(const std::set<std::string>& listed) {
  std::set<std::string> commands, keys;
  for (const std::string& line : listed) commands.insert(line.substr(0, line.find(": ")));
  std::string command;
  for (const std::string& line :
       base::split(base::read_file(EVALRUN_SOURCE_DIR "/docs/json.md"), '\n')) {
    if (line.starts_with("## ")) command = code_spans(line).at(0);
    if (!line.starts_with("| `")) continue;
    for (const std::string& key : code_spans(line.substr(0, line.find(" | "))))
      for (const std::string& name : commands) {
        if (name != command && !name.starts_with(command + " ")) continue;
        if (!key.ends_with(".*")) {
          EXPECT_TRUE(keys.insert(name + ": " + key).second) << "twice: " << name << ": " << key;
          continue;
        }
        const std::string below = name + ": " + key.substr(0, key.size() - 1);
        for (const std::string& known : listed)
          if (known.starts_with(below)) keys.insert(known);
      }
  }
  return keys;
}

// Every key that a command prints has a row in docs/json.md, and every row is a key.
TEST(StabilityDocs, JsonKeysAreDescribed) {
  const std::vector<std::string> lines =
      base::split(base::read_file(EVALRUN_TEST_DATA "/golden/json_keys.txt"), '\n');
  std::set<std::string> listed(lines.begin(), lines.end());
  listed.erase("");
  const std::set<std::string> documented = documented_keys(listed);
  EXPECT_GT(documented.size(), 400u);
  for (const std::string& line : listed)
    EXPECT_TRUE(documented.contains(line)) << "without a row in docs/json.md: " << line;
  for (const std::string& line : documented)
    EXPECT_TRUE(listed.contains(line)) << "in docs/json.md, but not printed: " << line;
}

class Version010 : public CommandTest {
 protected:
  void SetUp() override {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(folder_.file("old.db").c_str(), &db), SQLITE_OK);
    const std::string sql = base::read_file(EVALRUN_TEST_DATA "/results/evalrun-0.1.0.sql");
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK)
        << (message == nullptr ? "" : message);
    sqlite3_close(db);
  }
};

// Made otherwise since then: "Numbers change" of the changelog. So is what scopes are called.
bool is_interval_of_a_ratio(const std::string& key) {
  return (key.ends_with("_lo") || key.ends_with("_hi")) && !key.starts_with("speedup_geo");
}

// Depths at which no draft was asked have no figure any more; they were 0.
void expect_same_depths(json now, const json& before, const std::string& where) {
  while (now.size() < before.size()) now.push_back(0.0);
  EXPECT_EQ(now, before) << where;
}

TEST_F(Version010, ItsDatabaseGivesTheSameReport) {
  const ProgramResult result = run({"report", "--db", "old.db", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json now = json::parse(result.out);
  const json before =
      json::parse(base::read_file(EVALRUN_TEST_DATA "/results/evalrun-0.1.0.report.json"));
  ASSERT_EQ(now.size(), before.size());
  for (size_t row = 0; row < before.size(); ++row)
    for (const auto& [key, value] : before[row].items()) {
      if (is_interval_of_a_ratio(key) || key == "scope") continue;
      if (key == "alpha_cond" || key == "alpha_joint") {
        expect_same_depths(now[row].value(key, json::array()), value, key);
        continue;
      }
      EXPECT_EQ(now[row].value(key, json("missing")), value) << row << " " << key;
    }
  EXPECT_THAT(run({"baseline", "list", "--db", "old.db"}).out, HasSubstr("main"));
  EXPECT_EQ(run({"compare", "old", "main", "--db", "old.db"}).exit_code, 0);
}

// Versions name builds; what may be compared is decided by model, prompts and engine mode.
TEST_F(Version010, ABaselineOfItIsComparable) {
  write_prompts(folder_, 2);
  ASSERT_EQ(run(run_arguments(8, {"--label", "first"})).exit_code, 0);
  ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  change_stored(folder_.file("r.db"),
                "UPDATE run SET version = '0.1.0'; "
                "UPDATE environment SET value = '0.1.0' WHERE name = 'version'");
  const ProgramResult result = run({"check", "--max-regression", "90%", "--db", "r.db"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("not comparable")));
}

}  // namespace
}  // namespace evalrun::tests
