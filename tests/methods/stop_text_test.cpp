// Text that ends an answer, against the definition: the first token whose text, joined to all
// before it, holds a stop string or closes a brace nobody opened.
#include "methods/stop_text.h"

#include <gmock/gmock.h>

#include "engine/base/rng.h"
#include "tests/methods/support/text_tokens.h"

namespace evalrun::tests::stop_text_test {
namespace {

using methods::StopText;
using methods::StopTextRules;

// Index of the token that ends the answer, or -1, by reading the whole text anew for every token.
int end_by_definition(const std::vector<std::string>& tokens, const StopTextRules& rules) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    text += tokens[i];
    for (const std::string& string : rules.strings)
      if (text.find(string) != std::string::npos) return static_cast<int>(i);
    int depth = 0;
    for (const char c : text) {
      depth += (c == '{') - (c == '}');
      if (rules.closing_brace && depth < 0) return static_cast<int>(i);
    }
  }
  return -1;
}

int end_of(const std::vector<std::string>& tokens, const StopTextRules& rules) {
  const TextTokens tokenizer(tokens);
  StopText stop(tokenizer, rules);
  stop.begin();
  for (size_t i = 0; i < tokens.size(); ++i)
    if (stop.completed_by(static_cast<int32_t>(i))) return static_cast<int>(i);
  return -1;
}

TEST(StopText, StringsInsideAndAcrossTokens) {
  EXPECT_EQ(end_of({"a", "x\ndef f", "b"}, {{"\ndef"}}), 1);
  EXPECT_EQ(end_of({"a\n", "d", "e", "f", "g"}, {{"\ndef"}}), 3);
  EXPECT_EQ(end_of({"Que", "Question", ":", "x"}, {{"Question:"}}), 2);
  EXPECT_EQ(end_of({"\n", "de", "\nde", "f"}, {{"\ndef"}}), 3) << "a false start before it";
  EXPECT_EQ(end_of({"aa", "ab"}, {{"aab", "b"}}), 1);
  EXPECT_EQ(end_of({"def", " f"}, {{"\ndef"}}), -1);
  EXPECT_EQ(end_of({"", "", "x", ""}, {{"x"}}), 2) << "special tokens have no text";
  EXPECT_EQ(end_of({"caf\xc3", "\xa9!"}, {{"é"}}), 1) << "a character split between tokens";
}

TEST(StopText, TheBraceNobodyOpened) {
  const StopTextRules rules{{}, true};
  EXPECT_EQ(end_of({"  if (x) {", " y; }", "\n", "}\n\n", "int"}, rules), 3);
  EXPECT_EQ(end_of({"}{"}, rules), 0);
  EXPECT_EQ(end_of({"{{", "}}", "{", "}"}, rules), -1);
  EXPECT_EQ(end_of({"{ }", "x", "}"}, {{"x"}, true}), 1) << "whichever comes first";
}

TEST(StopText, BeginForgetsTheAnswerBefore) {
  const TextTokens tokenizer({"\nd", "ef", "{"});
  StopText stop(tokenizer, {{"\ndef"}, true});
  stop.begin();
  EXPECT_FALSE(stop.completed_by(0));
  EXPECT_FALSE(stop.completed_by(2));
  stop.begin();
  EXPECT_FALSE(stop.completed_by(1));
}

TEST(StopText, AsTheDefinitionOnRandomTokens) {
  const std::string alphabet = "ab{}\n";
  int stopped = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    base::Rng rng(seed);
    const auto word = [&](uint64_t least, uint64_t more) {
      std::string text;
      for (uint64_t n = least + rng.below(more); n > 0; --n) text += alphabet[rng.below(5)];
      return text;
    };
    StopTextRules rules;
    for (uint64_t n = rng.below(4); n > 0; --n) rules.strings.push_back(word(1, 6));
    rules.closing_brace = rng.below(4) == 0;
    std::vector<std::string> tokens;
    for (uint64_t n = rng.below(40); n > 0; --n) tokens.push_back(word(0, 4));
    const int expected = end_by_definition(tokens, rules);
    ASSERT_EQ(end_of(tokens, rules), expected) << "seed " << seed;
    stopped += expected >= 0;
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 2500);
}

}  // namespace
}  // namespace evalrun::tests::stop_text_test
