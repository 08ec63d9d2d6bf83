// Every option of every command that takes a value: a wrong one must be refused, by the option's
// name, and before anything is measured. What --help shows is what is tested, so a new option needs
// a line in kWrong.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "tests/cli/cli_test.h"
#include "tests/evaluators/judge_files.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

// A value that no use of the option accepts.
const std::map<std::string, std::string> kWrong = {
    {"--adjust", "nonsense"},
    {"--against", "nonsense"},
    {"--all", "suite.json/x"},
    {"--answers", "nonsense"},
    {"--arm", "nonsense"},
    {"--arm-a", "nonsense"},
    {"--arm-b", "nonsense"},
    {"--as", "nonsense"},
    {"--baseline", "nonsense"},
    {"--batch", "0"},
    {"--batch-mode", "nonsense"},
    {"--block", "0"},
    {"--budget", "0"},
    {"--cache", "suite.json/x"},
    {"--chat-template", "nonsense"},
    {"--chunk", "1"},
    {"--claims", "nowhere.csv"},
    {"--clear", "nonsense"},
    {"--clients", "0"},
    {"--columns-by", "nonsense"},
    {"--confidence", "2"},
    {"--columns", "nonsense"},
    {"--concurrency", "0"},
    {"--confirm", "nonsense"},
    {"--context", "0"},
    {"--contexts", "0"},
    {"--copy-every", "nonsense"},
    {"--copy-to", "suite.json/x.db"},
    {"--cost", "nonsense"},
    {"--data-root", "nowhere"},
    {"--device", "nonsense"},
    {"--devices", "nonsense"},
    {"--diff", "nonsense"},
    {"--draft", "nowhere.gguf"},
    {"--draft-dtype", "nonsense"},
    {"--draws", "1"},
    {"--law-draws", "5"},
    {"--dtype", "nonsense"},
    {"--endpoint", "nonsense"},
    {"--error", "2"},
    {"--estimator", "nonsense"},
    {"--evaluator", "nonsense"},
    {"--every", "nonsense"},
    {"--evaluators", "nonsense"},
    {"--export", "nonsense"},
    {"--fail-on", "nonsense"},
    {"--fault", "nonsense"},
    {"--fields", "nonsense"},
    {"--file", "nowhere.txt"},
    {"--format", "nonsense"},
    {"--from", "nonsense"},
    {"--generations", "nowhere.jsonl"},
    {"--gram", "0"},
    {"--host", "nonsense"},
    {"--in", "nowhere.jsonl"},
    {"--interval", "nonsense"},
    {"--isa", "nonsense"},
    {"--jobs", "-1"},
    {"--junit", "suite.json/x"},
    {"--k", "nonsense"},
    {"--k-max", "0"},
    {"--key-env", "nonsense"},
    {"--kind", "nonsense"},
    {"--kv-dtype", "nonsense"},
    {"--limit", "-1"},
    {"--max-clients", "0"},
    {"--max-extra-runs", "-1"},
    {"--max-key", "0"},
    {"--max-new", "-1"},
    {"--max-prompt", "0"},
    {"--max-quality-loss", "nonsense"},
    {"--max-requests", "0"},
    {"--max-regression", "nonsense"},
    {"--max-time", "nonsense"},
    {"--max-tokens", "0"},
    {"--max-turns", "-1"},
    {"--method", "nonsense"},
    {"--methods", "nonsense"},
    {"--min-count", "0"},
    {"--min-effect", "nonsense"},
    {"--model", "nowhere.gguf"},
    {"--nodes", "0"},
    {"--order", "nonsense"},
    {"--out", "suite.json/x"},
    {"--paper", "nonsense"},
    {"--parts", "nonsense"},
    {"--pass-k", "0"},
    {"--port", "70000"},
    {"--prefill", "-1"},
    {"--prompts", "0"},
    {"--quality-against", "nonsense"},
    {"--queue", "0"},
    {"--rate", "nonsense"},
    {"--repeats", "-1"},
    {"--replies", "nowhere.jsonl"},
    {"--requests", "suite.json/x"},
    {"--reproducible", "nonsense"},
    {"--residual", "nonsense"},
    {"--restart-command", "nonsense"},
    {"--restart-wait", "-1"},
    {"--restarts", "0"},
    {"--retries", "-1"},
    {"--retry-wait", "-1"},
    {"--rounds", "0"},
    {"--row-cost", "nonsense"},
    {"--rows", "0"},
    {"--sample-tokens", "0"},
    {"--sampler", "nonsense"},
    {"--samples", "-1"},
    {"--scheduler", "nonsense"},
    {"--scope", "nonsense"},
    {"--seed", "nonsense"},
    {"--sequences", "0"},
    {"--self-test", "nonsense"},
    {"--sessions", "1"},
    {"--shape", "nonsense"},
    {"--shard", "4/3"},
    {"--shards", "0"},
    {"--significance", "2"},
    {"--slo", "nonsense"},
    {"--split-by", "nonsense"},
    {"--suite", "nonsense"},
    {"--space", "nonsense"},
    {"--take", "nowhere.db"},
    {"--task", "nonsense"},
    {"--tasks", "nonsense"},
    {"--temperature", "-1"},
    {"--threads", "-1"},
    {"--time-scale", "0"},
    {"--timeout", "0"},
    {"--tool-folder", "nowhere"},
    {"--top", "0"},
    {"--top-k", "-1"},
    {"--top-logits", "-1"},
    {"--top-p", "2"},
    {"--tree", "nonsense"},
    {"--verdict", "suite.json/x"},
    {"--warmup", "nonsense"},
    {"--wave", "-1"},
    {"--wide", "nonsense"},
    {"--yardstick", "nonsense"},
};

// Options that take any text: no value is wrong.
const std::map<std::string, std::string> kFree = {
    {"--as (baseline import)", "a name to be given"},
    {"--label", "a name to be given"},
    {"--data-root (data fetch)", "made if need be"},
    {"--folder", "made if need be"},
    {"--judge-model", "a name that only a server knows"},
    {"--local", "a folder of other machines"},
    {"--name", "a name to be given"},
    {"--nonce", "any text keeps runs apart"},
    {"--note", "a remark"},
    {"--option", "a word for another program"},
    {"--program", "a file of other machines"},
    {"--store", "a folder of other machines"},
};

// What else the command line must hold for the option to be read.
std::map<std::string, Words> needed() {
  const Words fault = {"--self-test", "miscount", "--model", tiny_model()};
  return {
      {"check --against", {"--model", tiny_model()}},
      {"check --junit", {"run:1"}},
      {"check --limit", fault},
      {"check --max-new", fault},
      {"check --repeats", fault},
      {"check --sessions", {"--against", "other"}},
      {"check --suite", fault},
      {"check --verdict", {"run:1"}},
      {"doctor --jobs", {"--code"}},
      {"judge --arm-a", {"first"}},
      {"judge --arm-b", {"first"}},
      {"judge --cache", {"--requests", "open.jsonl"}},
      {"predict --budget", {"--nodes"}},
      {"report --paper", {"--claims", "claims.csv"}},
      {"score --out", {"--export", "lm-eval"}},
      {"verify --fault", {"--parts", "greedy"}},
  };
}

// Commands whose help is looked at, with words that make them work on the files below.
class Options : public CommandTest {
 protected:
  void SetUp() override {
    write_prompts(folder_, 2);
    ASSERT_EQ(run(run_arguments(8, {"--label", "first"})).exit_code, 0);
    ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
    ASSERT_EQ(run({"baseline", "export", "main", "main.db", "--db", "r.db"}).exit_code, 0);
    folder_.write("suite.json",
                  R"({"name": "tiny", "methods": ["ar", "pld"], "tasks": ["jsonl:prompts.jsonl"],
                      "max_new": 4, "warmup": 0})");
    folder_.write("job/cluster.json", R"({"scheduler": "slurm", "shards": 1, "program": "evalrun",
                      "run": ["suite.json"], "options": [], "store": "", "local": "", "jobs": []})");
    std::filesystem::create_directories(folder_.file("job/shards"));
    std::filesystem::copy_file(folder_.file("r.db"), folder_.file("job/shards/1-of-1.db"));
    folder_.write("in.jsonl", "{\"prompt\": \"the cat\", \"text\": \"the cat\"}\n");
    folder_.write("text.txt", "the cat sat on the mat and the cat sat there again\n");
    folder_.write("answers.jsonl", "");
    folder_.write("claims.csv",
                  "paper,place,model,dataset,category,method,config,metric,value,sd,unit,"
                  "hardware,note\n"
                  "p,Table 1,m,d,,pld,greedy,speedup,2.10,,ratio,A100,\n");
    folder_.write("data/gsm8k/test.jsonl", "{\"question\": \"1 + 1?\", \"answer\": \"#### 2\"}\n");
    folder_.write("g.jsonl", "{\"id\": \"gsm8k/0\", \"text\": \"#### 2\"}\n");
    folder_.write("data/mt_bench/judge_prompts.jsonl", judge_prompts_file());
    folder_.write("data/mt_bench/reference_answer/gpt-4.jsonl", judge_references_file());
  }
  // The words after `command`, without those that other options bring.
  std::map<std::string, Words> commands() const {
    const std::string model = tiny_model();
    const Words judge = {"first",       "--judge-model", "m",       "--task",  "jsonl",
                         "--data-root", "data",          "--cache", "judge.db"};
    return {
        {"audit", {"claims.csv"}},
        {"baseline export", {"main", "again.db"}},
        {"baseline import", {"main.db", "--as", "other"}},
        {"baseline list", {}},
        {"baseline rm", {"other"}},
        {"baseline save", {"second"}},
        {"baseline show", {"main"}},
        {"capture", {"--model", model, "--in", "in.jsonl", "--out", "captured", "--max-new", "4"}},
        {"check", {"--max-regression", "90%"}},
        {"cluster collect", {"job"}},
        {"cluster resubmit", {"job"}},
        {"cluster status", {"job"}},
        {"cluster submit", {"suite.json", "--dry-run", "--shards", "2", "--folder", "new"}},
        {"compare", {"1", "1"}},
        {"completion", {"bash"}},
        {"corpus build", {"in.jsonl", "--kind", "ngrams", "--model", model, "--out", "x.ngrams"}},
        {"corpus info", {"./x.ngrams"}},
        {"cost", {"--model", model, "--rounds", "1", "--rows", "1"}},
        {"data cache", {}},
        {"data fetch", {}},  // the network
        {"data list", {}},
        {"data overlap", {"in.jsonl"}},
        {"data model", {"--check"}},  // the network, without it
        {"data verify", {}},
        {"doctor", {"--model", model}},
        {"generate", {"--model", model, "--in", "in.jsonl", "--max-new", "4"}},
        {"judge", judge},
        {"list", {"tasks"}},
        {"load",
         {"--endpoint", "a=http://127.0.0.1:9", "--model", model, "--tasks",
          "jsonl:prompts.jsonl"}},
        {"man", {}},
        {"merge", {"merged.db", "r.db:1"}},
        {"perplexity", {"--model", model, "--file", "text.txt"}},
        {"predict", {}},
        {"report", {}},
        {"run", {"suite.json", "--model", model}},
        {"score", {"--task", "gsm8k", "--data-root", "data", "--generations", "g.jsonl"}},
        {"serve", {"--model", model, "--port", "0"}},
        {"show", {"1"}},
        {"tokenize", {"--model", model, "--in", "in.jsonl"}},
        {"tune method", {"--model", model, "--methods", "pld", "--limit", "4", "-n", "8"}},
        {"tune parameters",
         {"--model", model, "--method", "pld", "--space", "k=1..3", "--limit", "4", "-n", "8"}},
        {"tune self_spec", {"--model", model}},
        {"tune tree",
         {"--model", model, "--method",
          "medusa:any_target=true,dtype=f32,adapter=" EVALRUN_TEST_DATA
          "/adapters/medusa.safetensors"}},
        {"validate", {"suite.json"}},
        {"verify", {"--model", model, "--methods", "pld", "--tasks", "jsonl:prompts.jsonl"}},
    };
  }
  std::string help_of(const Words& command) {
    Words words = command;
    words.push_back("--help");
    const ProgramResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  // `command` and those below it that do something, by their help.
  void find_commands(const Words& command, std::set<std::string>& found) {
    static const std::regex name("  ([a-z_]+)  +[A-Z].*");
    bool leaf = true;
    std::smatch match;
    const std::string help = help_of(command);
    for (const std::string& line : base::split(help.substr(0, help.find("Examples:")), '\n'))
      if (std::regex_match(line, match, name)) {
        Words below = command;
        below.push_back(match[1]);
        find_commands(below, found);
        leaf = false;
      }
    if (leaf) found.insert(fmt::format("{}", fmt::join(command, " ")));
  }
  // Names of the options of a command that take a value, but for the global ones.
  std::set<std::string> options_with_values(const std::string& command) {
    static const std::regex option(
        "  (?:-\\w,)?(--[\\w-]+)(?:,--?[\\w-]+)* "
        "(?!Needs:|Excludes:)[^ ].*");
    std::set<std::string> names;
    std::smatch match;
    for (const std::string& line : base::split(help_of(base::split(command, ' ')), '\n'))
      if (std::regex_match(line, match, option)) names.insert(match[1]);
    return names;
  }
};

TEST_F(Options, EveryCommandIsTestedHere) {
  std::set<std::string> found, known;
  find_commands({}, found);
  for (const auto& [command, words] : commands()) known.insert(command);
  EXPECT_EQ(found, known);
}

TEST_F(Options, TheWordsOfThisTestAreRight) {
  const std::set<std::string> slow = {"data fetch", "data model", "data verify", "doctor",
                                      "tune self_spec", "tune tree", "verify", "judge",
                                      // The last two need a server, and do not end by themselves.
                                      "cost", "load", "serve",
                                      // Their shards are those of a scheduler.
                                      "cluster collect", "cluster resubmit", "cluster status"};
  for (const auto& [command, words] : commands()) {
    if (slow.contains(command)) continue;
    Words line = base::split(command, ' ');
    line.insert(line.end(), words.begin(), words.end());
    line.insert(line.end(), {"--db", "r.db"});
    const ProgramResult result = run(line);
    EXPECT_EQ(result.exit_code, 0) << command << ": " << result.err;
  }
}

size_t columns(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](unsigned char c) {
    return (c & 0xC0) != 0x80;  // not inside a code point
  }));
}

TEST_F(Options, HelpIsNoWiderThanTheTerminal) {
  for (const size_t width : {40u, 60u, 80u, 100u, 132u}) {
    ::setenv("COLUMNS", fmt::format("{}", width).c_str(), 1);
    Words all;
    for (const auto& [command, words] : commands()) all.push_back(command);
    all.emplace_back("");
    for (const std::string& command : all)
      for (const std::string& line :
           base::split(help_of(command.empty() ? Words{} : base::split(command, ' ')), '\n'))
        EXPECT_LE(columns(line), width) << command << ": " << line;
  }
  ::unsetenv("COLUMNS");
}

// After a wanted change: EVALRUN_UPDATE_GOLDEN=1 bin/cli_test --gtest_filter=Options.Defaults
TEST_F(Options, Defaults) {
  static const std::regex line(
      "  (?:-\\w,)?(--[\\w-]+)(?:,--?[\\w-]+)* ([A-Z|]+(?::[^ =]*(?: in \\[[^\\]]*\\])?)?=\\S+)(?: "
      ".*)?");
  std::string text;
  std::smatch match;
  const auto add = [&](const std::string& command) {
    const std::string help = command.empty() ? help_of({}) : help_of(base::split(command, ' '));
    for (const std::string& l : base::split(help, '\n'))
      if (std::regex_match(l, match, line))
        text += fmt::format("{} {} {}\n", command.empty() ? "evalrun" : command, match[1].str(),
                            match[2].str());
  };
  add("");
  for (const auto& [command, words] : commands()) add(command);
  const std::string path = EVALRUN_TEST_DATA "/golden/option_defaults.txt";
  if (std::getenv("EVALRUN_UPDATE_GOLDEN") != nullptr) base::write_file_atomic(path, text);
  EXPECT_EQ(base::read_file(path), text);
}

TEST_F(Options, AWrongValueIsRefusedByName) {
  const std::map<std::string, Words> needs = needed();
  for (const auto& [command, usual] : commands())
    for (const std::string& option : options_with_values(command)) {
      if (kFree.contains(option) || kFree.contains(fmt::format("{} ({})", option, command)))
        continue;
      const auto wrong = kWrong.find(option);
      if (wrong == kWrong.end()) {
        ADD_FAILURE() << command << ' ' << option << ": add a wrong value to kWrong";
        continue;
      }
      Words line = base::split(command, ' ');
      for (size_t i = 0; i < usual.size(); ++i)
        if (usual[i] == option)
          ++i;  // its value
        else
          line.push_back(usual[i]);
      if (const auto with = needs.find(command + " " + option); with != needs.end())
        line.insert(line.end(), with->second.begin(), with->second.end());
      line.insert(line.end(), {"--db", "r.db", option, wrong->second});
      const ProgramResult result = run(line);
      const std::string what =
          fmt::format("{}: {}{}", fmt::join(line, " "), result.out, result.err);
      EXPECT_GE(result.exit_code, 2) << what;
      EXPECT_LE(result.exit_code, 7) << what;
      // Results, which name what they are about.
      const bool verdict = option == "--baseline" || (command == "doctor" && option == "--model");
      EXPECT_THAT(result.out + result.err, HasSubstr(verdict ? wrong->second : option)) << what;
      EXPECT_THAT(result.err, Not(HasSubstr("fault of evalrun"))) << what;
    }
}

TEST_F(Options, OptionsOfAnotherModeAreRefused) {
  const std::string model = tiny_model();
  const std::vector<std::pair<Words, std::string>> lines = {
      {{"show", "run:1", "--diff", "ar"}, "--diff"},
      {{"show", "first", "-m", model}, "--model"},
      {{"show", "1", "-m", model, "--json"}, "--model"},
      {{"list", "suites", "--data-root", "data"}, "--data-root"},
      {{"list", "tasks", "--papers"}, "--papers"},
      {{"doctor", "--jobs", "2"}, "--code"},
      {{"load", "--from", "l.jsonl", "--rate", "2"}, "--rate"},
      {{"doctor", "--code", "-m", model}, "--model"},
      {{"score", "first", "--against", "ar", "--data-root", "data"}, "--data-root"},
      {{"score", "first", "--against", "ar", "--allow-unsafe"}, "--allow-unsafe"},
      {{"judge", "first", "--judge-model", "m", "--arm-a", "ar"}, "--arm-a"},
      {{"judge", "1", "1", "--judge-model", "m", "--arm", "ar"}, "--arm"},
      {{"judge", "1", "--judge-model", "m", "--requests", "o", "--endpoint", "http://x"},
       "--endpoint"},
      {{"judge", "1", "--judge-model", "m", "--replies", "o", "--timeout", "3"}, "--timeout"},
      {{"report", "--columns-by", "category", "--why"}, "--why"},
      {{"report", "1", "1", "--pass-k", "1"}, "--pass-k"},
      {{"report", "--as", "falcon", "--quality-against", "ar"}, "--quality-against"},
      {{"verify", "--methods", "pld", "--parts", "greedy", "--draws", "200"}, "--draws"},
      {{"verify", "--methods", "pld", "--parts", "steps", "--samples", "9"}, "--samples"},
      {{"verify", "--methods", "pld", "--parts", "greedy", "--top-k", "9"}, "--top-k"},
      {{"verify", "--methods", "pld", "--parts", "texts", "-n", "9"}, "--max-new"},
      {{"verify", "--methods", "pld", "--against", "plain=http://127.0.0.1:1"}, "--against"},
      {{"verify", "--endpoint", "spec=http://127.0.0.1:1"}, "--against"},
      {{"verify", "--endpoint", "a=http://127.0.0.1:1", "--against", "b=http://127.0.0.1:1",
        "--methods", "pld"},
       "--methods"},
      {{"verify", "--endpoint", "a=http://127.0.0.1:1", "--against", "b=http://127.0.0.1:1",
        "--parts", "texts", "--samples", "9"},
       "--samples"},
      {{"verify", "--endpoint", "a=http://127.0.0.1:1", "--against", "b=http://127.0.0.1:1",
        "--draws", "300"},
       "--draws"},
      {{"corpus", "build", "text.txt", "--kind", "suffixes", "--fields", "text", "-m", model},
       "--fields"},
      {{"run", "suite.json", "-m", model, "--plan", "-o", "csv"}, "--format"},
      {{"report", "--json", "-o", "md"}, "--format md"},
  };
  for (auto [line, option] : lines) {
    line.insert(line.end(), {"--db", "r.db"});
    const ProgramResult result = run(line);
    EXPECT_EQ(result.exit_code, 2) << fmt::format("{}", fmt::join(line, " ")) << result.err;
    EXPECT_THAT(result.err, HasSubstr(option));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(Options, ExamplesAreTheCommandsOwn) {
  for (const auto& [command, words] : commands())
    EXPECT_THAT(help_of(base::split(command, ' ')), Not(HasSubstr("evalrun compare before after\n\n"
                                                                  "`evalrun COMMAND --help`")))
        << command;
  const std::string tune = help_of({"tune"});
  EXPECT_THAT(tune, HasSubstr("evalrun tune self_spec\n"));
  EXPECT_THAT(tune, Not(HasSubstr("evalrun report")));
}

// Every old name does what the new one does.
TEST_F(Options, OldNames) {
  const std::string model = tiny_model();
  const auto same = [&](const Words& command, const Words& before, const Words& now) {
    ProgramResult results[2];
    for (const bool old : {false, true}) {
      Words line = command;
      const Words& more = old ? before : now;
      line.insert(line.end(), more.begin(), more.end());
      line.insert(line.end(), {"--db", "r.db"});
      results[old] = run(line);
    }
    const std::string what = fmt::format("{} {}", fmt::join(command, " "), fmt::join(before, " "));
    EXPECT_EQ(results[0].exit_code, 0) << what << results[0].err;
    EXPECT_EQ(results[1].exit_code, 0) << what << results[1].err;
    EXPECT_EQ(results[0].out, results[1].out) << what;
  };
  for (const char* estimator : {"geo", "legacy", "legacy-decode"})
    same({"report", "-o", "csv"}, {"--metric", estimator}, {"--estimator", estimator});
  same({"report", "-o", "csv"}, {"--by=category"}, {"--split-by=category"});
  EXPECT_THAT(run({"report", "1", "--group-by", "colour", "--db", "r.db"}).err,
              HasSubstr("--columns-by"));
  same({"check", "run:1"}, {"--alpha", "0.01"}, {"--significance", "0.01"});
  same({"score", "--generations", "g.jsonl", "--data-root", "data"},
       {"--dataset", "gsm8k", "--workers", "1"}, {"--task", "gsm8k", "-j", "1"});
  same({"perplexity", "-m", model, "--file", "text.txt"}, {"--bits", "cross-isa"},
       {"--reproducible", "cross-isa"});
  const Words corpus = {"corpus", "build", "text.txt", "--kind", "ngrams", "-m", model};
  for (const Words& more : {Words{"-o", "a"}, Words{"-ob"}, Words{"-o=c"}, Words{"--out", "d"}}) {
    Words line = corpus;
    line.insert(line.end(), more.begin(), more.end());
    EXPECT_EQ(run(line).exit_code, 0) << more[0];
  }
  for (const char* file : {"a", "b", "c", "d"})
    EXPECT_TRUE(std::filesystem::exists(folder_.file(file))) << file;
  for (const Words& line : {Words{"run", "suite.json", "-m", model, "--score-workers", "1"},
                            Words{"run", "suite.json", "-m", model, "--max-time", "1m"}})
    EXPECT_EQ(run(line).exit_code, 0) << line[4];
  EXPECT_THAT(run({"doctor", "--code", "--workers", "0"}).err, HasSubstr("--jobs"));
  EXPECT_THAT(run({"tune", "self_spec", "--seconds", "never"}).err, HasSubstr("--max-time"));
}

}  // namespace
}  // namespace evalrun::tests
