// The small parts of the commands: JSON Lines, units, tables.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/devices.h"
#include "runners/cli/cli.h"
#include "runners/cli/jsonl.h"
#include "runners/cli/measure/doctor_code.h"
#include "runners/cli/measure/doctor_findings.h"
#include "runners/cli/output.h"
#include "runners/cli/stored_row_times.h"
#include "runners/cli/text/corpus_input.h"
#include "runners/cli/units.h"
#include "runners/machine/row_cost_cache.h"
#include "tests/temp_folder.h"

namespace evalrun::cli {
namespace {

using ::testing::HasSubstr;

class TextFile {
 public:
  explicit TextFile(const std::string& text) : path_(folder_.write("text", text)) {}
  const std::string& path() const { return path_; }

 private:
  tests::TempFolder folder_;
  std::string path_;
};

std::string message_of(JsonlReader& reader) {
  try {
    reader.next();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    return e.what();
  }
  return "no error";
}

TEST(StoredRowTimes, AreOfOneSequenceAndOfEveryBatch) {
  engine::RowCostTable table;
  table.context = 256;
  table.rows = {{1, 10, 10, 10, {}}, {4, 20, 20, 20, {}}};
  reports::RunInfo run;
  EXPECT_FALSE(stored_row_times(run));
  const auto store = [&](const std::string& name) {
    run.environment[name] = runners::to_json(table).dump();
  };
  store("row_cost");
  table.sequences = 8;
  table.rows[1].ms = 90;
  store("row_cost_batch_8");
  table.sequences = 4, table.shape = "llama-2-7b";
  store("row_cost_batch_4");
  run.environment["row_cost_batch_2"] = "broken";
  const reports::RowTimes times = stored_row_times(run);
  EXPECT_EQ(times.of(1)(4), 20);
  EXPECT_EQ(times.of(8)(4), 90);
  EXPECT_EQ(times.batches.size(), 1u) << "neither a shape's nor a broken one";
  EXPECT_EQ(times.of(2)(2), 20);
  EXPECT_EQ(times.context, 256);
}

TEST(JsonlReader, KeepsOrderAndSkipsBlankLines) {
  const TextFile file("{\"a\":1}\n\n  \r\n{\"a\":2}\r\n{\"a\":3}");
  JsonlReader reader(file.path());
  for (int expected = 1; expected <= 3; ++expected) {
    const auto object = reader.next();
    ASSERT_TRUE(object.has_value());
    EXPECT_EQ((*object)["a"], expected);
  }
  EXPECT_FALSE(reader.next().has_value());
}

TEST(JsonlReader, NamesFileAndLine) {
  for (const char* bad : {"{\"a\":", "[1]", "3", "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}"}) {
    const TextFile file(std::string("{}\n\n") + bad + "\n");
    JsonlReader reader(file.path());
    reader.next();
    EXPECT_THAT(message_of(reader), HasSubstr(file.path() + ": line 3")) << bad;
  }
  EXPECT_THROW(JsonlReader("/nonexistent/x"), base::Error);
  EXPECT_THROW(JsonlReader("/"), base::Error);
}

TEST(JsonlReader, ChecksFields) {
  const TextFile file(
      "{\"text\":3,\"ids\":[0,9],\"big\":[10],\"low\":[-1],\"half\":[1.5],"
      "\"huge\":[18446744073709551615]}");
  JsonlReader reader(file.path());
  const auto object = *reader.next();
  EXPECT_THROW(reader.text(object, "text"), base::Error);
  EXPECT_THROW(reader.text(object, "absent"), base::Error);
  EXPECT_EQ(reader.tokens(object, "ids", 10), (std::vector<int32_t>{0, 9}));
  for (const char* key : {"big", "low", "half", "huge", "text", "absent"})
    EXPECT_THROW(reader.tokens(object, key, 10), base::Error) << key;
}

TEST(Units, SharesAsPercentAndFraction) {
  EXPECT_EQ(parse_share("3%"), 0.03);
  EXPECT_EQ(parse_share("0.03"), 0.03);
  EXPECT_EQ(parse_share("0"), 0.0);
  EXPECT_EQ(parse_share("2.5%"), 0.025);
  EXPECT_EQ(parse_share("35%"), 0.35);
  for (const char* bad : {"", "%", "x", "3 %", "-1%", "100%", "1", "nan", "0.1x"})
    EXPECT_EQ(parse_share(bad), std::nullopt) << bad;
}

TEST(Units, AnOptionHoldsTheNumber) {
  CLI::App app;
  double share = 0, seconds = 0;
  app.add_option("--share", share)->transform(as_share());
  app.add_option("--time", seconds)->transform(as_seconds());
  app.parse("--share 0.123456789% --time 12345678m");
  EXPECT_EQ(share, 0.00123456789);
  EXPECT_EQ(seconds, 740740680);
  EXPECT_THROW(app.parse("--share lots"), CLI::ValidationError);
}

TEST(Colours, WantedOnATerminalUnlessToldOtherwise) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo-terminals here";
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(colour_wanted(false, terminal));
  EXPECT_FALSE(colour_wanted(true, terminal));
  ::setenv("NO_COLOR", "", 1);  // as not set: no-color.org
  EXPECT_TRUE(colour_wanted(false, terminal));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(colour_wanted(false, terminal));
  ::unsetenv("NO_COLOR");
  ::close(terminal);
  tests::TempFolder folder;
  const int file = ::open(folder.write("x", "").c_str(), O_RDONLY);
  EXPECT_FALSE(colour_wanted(false, file));
  ::close(file);
}

TEST(Home, OneDefinitionForModelsAndCaches) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto home = variable("HOME"), own = variable("EVALRUN_HOME");
  ::setenv("EVALRUN_HOME", "/there", 1);
  EXPECT_EQ(default_model_path().rfind(base::home_folder().string() + "/models/", 0), 0u);
  EXPECT_EQ(runners::row_cost_cache_path(), "/there/row-cost.json");
  ::unsetenv("EVALRUN_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(runners::row_cost_cache_path(), "") << "no file in the current folder";
  EXPECT_THROW(default_model_path(), base::Error);
  if (home) ::setenv("HOME", home->c_str(), 1);
  if (own) ::setenv("EVALRUN_HOME", own->c_str(), 1);
}

TEST(Model, OnlyTheDefaultIsLookedFor) {
  const char* value = std::getenv("EVALRUN_HOME");
  const auto own = value ? std::optional<std::string>(value) : std::nullopt;
  tests::TempFolder home;
  ::setenv("EVALRUN_HOME", home.path().c_str(), 1);
  ModelOptions options;
  EXPECT_THROW(options.path(), base::Error);
  const std::filesystem::path file = default_model_path();
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << "weights";
  EXPECT_EQ(options.path(), file);
  options.model = home.file("none.gguf");
  EXPECT_EQ(options.path(), options.model) << "refused by name where it is read";
  own ? ::setenv("EVALRUN_HOME", own->c_str(), 1) : ::unsetenv("EVALRUN_HOME");
}

TEST(Doctor, SaysWhichPathIsTaken) {
  const char* value = std::getenv("EVALRUN_ISA");
  const auto own = value ? std::optional<std::string>(value) : std::nullopt;
  const auto paths = [](const std::string& isa) {
    ::setenv("EVALRUN_ISA", isa.c_str(), 1);
    Findings found;
    examine_isas(found);
    return found.at(0);
  };
  const std::string best = engine::available_isas().front();
  EXPECT_THAT(paths("").value, testing::EndsWith("; chosen: " + best));
  for (const std::string& forced : {best, std::string("reference")}) {
    const Finding f = paths(forced);
    EXPECT_EQ(f.level, forced == best ? Level::kOk : Level::kNote);
    EXPECT_THAT(f.value, testing::EndsWith("; chosen: " + forced + " (EVALRUN_ISA)"));
    EXPECT_EQ(f.hint, "");
  }
  const Finding wrong = paths("mmx");
  EXPECT_EQ(wrong.level, Level::kProblem);
  EXPECT_THAT(wrong.value, HasSubstr("; chosen: none: "));
  EXPECT_EQ(wrong.hint, "unset EVALRUN_ISA or name one of these");
  own ? ::setenv("EVALRUN_ISA", own->c_str(), 1) : ::unsetenv("EVALRUN_ISA");
}

TEST(Doctor, FindingsAsTableAndDocument) {
  const auto printed = [](const Findings& findings, bool as_json) {
    testing::internal::CaptureStdout();
    print_findings(findings, as_json);
    return testing::internal::GetCapturedStdout();
  };
  const Findings fit = {{"cores", "2"}, {"load", "9", Level::kWarning, "wait"}};
  const Findings broken = {{"model", "none", Level::kProblem, "get one"}};
  EXPECT_THAT(printed(fit, false),
              testing::ContainsRegex("ok +cores +2 *\nWARNING +load +9 - wait"));
  EXPECT_THAT(printed(fit, false), HasSubstr("\n\nfit to measure\n"));
  EXPECT_THAT(printed(broken, false), HasSubstr("\n\n1 problems\n"));
  EXPECT_EQ(nlohmann::json::parse(printed(fit, true))["ok"], true);
  const auto document = nlohmann::json::parse(printed(broken, true));
  EXPECT_EQ(document["ok"], false);
  EXPECT_EQ(document["checks"].dump(),
            R"([{"hint":"get one","level":"PROBLEM","name":"model","value":"none"}])");
}

TEST(Doctor, SolutionsAsTableAndDocument) {
  SolutionCheck go, rust;
  go.language = "Go", go.version = "go1.19", go.problems = "our own";
  go.passed = 1, go.total = 2, go.median_ms = 80.4;
  go.failures = {"Go/1 failed ()"};
  rust.language = "Rust", rust.missing = "apt-get x";
  const auto printed = [&](bool as_json) {
    testing::internal::CaptureStdout();
    print_solutions({go, rust}, 3, as_json);
    return testing::internal::GetCapturedStdout();
  };
  const auto document = nlohmann::json::parse(printed(true));
  EXPECT_EQ(document["workers"], 3);
  ASSERT_EQ(document["languages"].size(), 2u);
  EXPECT_EQ(document["languages"][0]["median_ms"], 80.4);
  EXPECT_EQ(document["languages"][1]["missing"], "apt-get x");
  const std::string table = printed(false);
  EXPECT_THAT(table, testing::ContainsRegex("Go +go1.19 +our own +1 / 2 +80 "));
  EXPECT_THAT(table, testing::ContainsRegex("Rust +apt-get x +not run"));
  EXPECT_THAT(table, HasSubstr("official solutions, 3 workers"));
  EXPECT_THAT(table, HasSubstr("not passed:\nGo/1 failed ()"));
}

TEST(Output, TableAlignsByCodePoints) {
  EXPECT_EQ(aligned_table({"a", "bb"}, {{"\xc3\xa9\xc3\xa9", "x"}, {"1", ""}}),
            "a   bb\n\xc3\xa9\xc3\xa9  x\n1");
}

TEST(CollapseBlanks, KeepsWordsLinesAndParagraphs) {
  EXPECT_EQ(collapse_blanks(""), "");
  EXPECT_EQ(collapse_blanks(" \t\r\n\f"), "");
  EXPECT_EQ(collapse_blanks("  a \t b  "), "a b");
  EXPECT_EQ(collapse_blanks("a\n  b\r\nc\rd"), "a\nb\nc\nd");
  EXPECT_EQ(collapse_blanks("a \n\n \t\n\n b\n"), "a\n\nb");
  EXPECT_EQ(collapse_blanks("a\r\n\r\n\r\nb\r"), "a\n\nb");
  EXPECT_EQ(collapse_blanks(std::string_view("a\0\x7f"
                                             "b",
                                             4)),
            "a b");
  EXPECT_EQ(collapse_blanks("caf\xC3\xA9 \xE2\x82\xAC"), "caf\xC3\xA9 \xE2\x82\xAC");
}

std::vector<std::string> documents_of(const std::string& path, const CorpusInput& input) {
  std::vector<std::string> documents;
  for_each_document(path, input, [&](const std::string& text) { documents.push_back(text); });
  return documents;
}

TEST(CorpusInput, LinesOfJsonLinesAreDocuments) {
  const TextFile text("a  b\n\n{\"q\": 1}\n");
  EXPECT_THAT(documents_of(text.path(), {}), testing::ElementsAre("a b\n\n{\"q\": 1}"));
  EXPECT_THAT(documents_of(text.path(), {{}, true}), testing::ElementsAre("a  b\n\n{\"q\": 1}\n"));
  const std::string path = text.path() + ".jsonl";
  std::ofstream(path) << "{\"q\": \"z\", \"a\": [\"y\", {\"b\": \"x\"}, 3]}\r\n \n{\"a\": []}";
  EXPECT_THAT(documents_of(path, {}), testing::ElementsAre("z\ny\nx", ""));
  EXPECT_THAT(documents_of(path, {{"a"}}), testing::ElementsAre("y\nx", ""));
  EXPECT_THROW(documents_of(path, {{"q"}}), base::Error) << "the second line has no q";
}

}  // namespace
}  // namespace evalrun::cli
