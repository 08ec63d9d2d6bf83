// evalrun tokenize.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using Tokenize = CommandTest;

TEST_F(Tokenize, OneLinePerLineInOrder) {
  const std::string input =
      "{\"text\": \"the cat\"}\n\n{\"text\": \"\", \"other\": 1}\n{\"text\": \"the\"}\n";
  folder_.write("in.jsonl", input);
  const ProgramResult result = run({"tokenize", "-m", tiny_model(), "--in", "in.jsonl"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = parse_lines(result.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_GT(lines[0]["ids"].size(), lines[2]["ids"].size());
  EXPECT_EQ(lines[1], json({{"ids", json::array()}}));
  EXPECT_EQ(lines[0]["ids"][0], lines[2]["ids"][0]);
  // The same through a pipe, and from the same model as a GGUF file.
  EXPECT_EQ(run_with_input({"tokenize", "-m", tiny_model(), "--in", "-"}, input).out, result.out);
  EXPECT_EQ(run({"tokenize", "-m", tiny_gguf(), "--in", "in.jsonl"}).out, result.out);
}

TEST_F(Tokenize, SpecialTokensInText) {
  folder_.write("in.jsonl", "{\"text\": \"<|im_end|>\"}\n");
  const std::vector<std::string> command = {"tokenize", "-m", tiny_model(), "--in", "in.jsonl"};
  EXPECT_EQ(parse_lines(run(command).out)[0]["ids"], json({2}));
  std::vector<std::string> plain = command;
  plain.push_back("--no-special");
  const json ids = parse_lines(run(plain).out)[0]["ids"];
  EXPECT_GT(ids.size(), 1u);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 0);
}

TEST_F(Tokenize, TakesOnlyTheOptionsItReads) {
  folder_.write("in.jsonl", "{\"text\": \"a\"}\n");
  for (const char* option : {"--dtype", "--device", "--isa", "--draft", "--kv-dtype",
                             "--reproducible", "--threads", "--chat-template"})
    expect_refused(run({"tokenize", "-m", tiny_model(), "--in", "in.jsonl", option, "cpu"}), 2,
                   option);
}

// Neither loads a second model.
TEST_F(Tokenize, NoDraftWhereNoneIsRead) {
  folder_.write("text.txt", "the cat sat on the mat");
  expect_refused(run({"perplexity", "-m", tiny_model(), "--file", "text.txt", "--draft", "none"}),
                 2, "--draft");
  expect_refused(run({"tune", "self_spec", "-m", tiny_model(), "--draft", "none"}), 2, "--draft");
  expect_refused(run({"tune", "tree", "--method", "medusa", "-m", tiny_model(), "--draft", "none"}),
                 2, "--draft");
}

TEST_F(Tokenize, BadInput) {
  folder_.write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
  const ProgramResult broken = run({"tokenize", "-m", tiny_model(), "--in", "broken.jsonl"});
  EXPECT_EQ(broken.exit_code, 7);
  EXPECT_THAT(broken.err, ::testing::HasSubstr("broken.jsonl: line 2"));
  EXPECT_EQ(parse_lines(broken.out).size(), 1u) << "lines before the broken one are answered";
  folder_.write("field.jsonl", "{\"txt\": \"a\"}\n");
  expect_refused(run({"tokenize", "-m", tiny_model(), "--in", "field.jsonl"}), 7, "'text'");
  expect_refused(run({"tokenize", "-m", tiny_model(), "--in", "absent.jsonl"}), 7, "absent.jsonl");
  expect_refused(run({"tokenize", "-m", tiny_model()}), 2, "--in");
  expect_refused(run({"tokenize", "-m", "absent.gguf", "--in", "field.jsonl"}), 7, "absent.gguf");
}

}  // namespace
}  // namespace evalrun::tests
