// evalrun validate.
#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using Validate = CommandTest;

TEST_F(Validate, SaysWhatAFileIs) {
  folder_.write("suite.json",
                R"({"name": "mine", "methods": ["ar", "pld:k=3"], "tasks": ["samples"]})");
  folder_.write("prompts.jsonl",
                "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": 2, \"turns\": [\"a\", \"b\"]}\n");
  const ProgramResult result =
      run({"validate", "suite.json", "prompts.jsonl", tiny_model(), tiny_gguf(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json found = json::parse(result.out);
  ASSERT_EQ(found.size(), 4u);
  const std::vector<std::string> kinds = {"suite", "data set", "model", "model"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found[i]["ok"], true);
    EXPECT_EQ(found[i]["kind"], kinds[i]);
  }
  EXPECT_THAT(found[1]["summary"].get<std::string>(), HasSubstr("2 prompts, 3 turns"));
}

TEST_F(Validate, NamesWhatIsWrong) {
  const auto refuse = [&](const std::string& file, int code, const std::string& named) {
    SCOPED_TRACE(file);
    expect_refused(run({"validate", file}), code, named);
  };
  folder_.write("suite.json",
                R"({"name": "mine", "methods": ["ar"], "tasks": ["samples"], "repeat": 2})");
  refuse("suite.json", 2, "repeat");
  folder_.write("method.json",
                R"({"name": "mine", "methods": ["ar", "pdl"], "tasks": ["samples"]})");
  refuse("method.json", 2, "pld");
  folder_.write("prompts.jsonl", "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": 1, \"prompt\": \"b\"\n");
  refuse("prompts.jsonl", 7, "prompts.jsonl: line 2");
  const std::string whole = base::read_file(tiny_gguf());
  folder_.write("half.gguf", whole.substr(0, whole.size() / 2));
  refuse("half.gguf", 7, "half.gguf");
  folder_.write("half.bin", whole.substr(0, 100));
  refuse("half.bin", 7, "half.bin");
  folder_.write("x.safetensors", "12345678");
  refuse("x.safetensors", 7, "x.safetensors");
  folder_.write("x.db", "not a database, but long enough to be looked into as one, surely");
  refuse("x.db", 7, "x.db");
  folder_.write("notes.txt", "hello");
  refuse("notes.txt", 2, "notes.txt");
  refuse("absent.json", 7, "absent.json");
}

TEST_F(Validate, ATallyMustBeWhatTheRowsAddUpTo) {
  write_prompts(folder_, 2);
  ASSERT_EQ(run(run_arguments(8)).exit_code, 0);
  EXPECT_THAT(run({"validate", "r.db"}).out, HasSubstr("accounting right"));
  change_stored(folder_.file("r.db"), "UPDATE generation SET tally = x'00' WHERE id = 2");
  expect_refused(run({"validate", "r.db"}), 5, "generation 2");
}

TEST_F(Validate, OneBadFileDoesNotHideTheOthers) {
  folder_.write("good.jsonl", "{\"id\": 1, \"prompt\": \"a\"}\n");
  const ProgramResult result = run({"validate", "absent.json", "good.jsonl"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("absent.json"));
  EXPECT_THAT(result.out, HasSubstr("good.jsonl: ok"));
}

}  // namespace
}  // namespace evalrun::tests
