#include "engine/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/utf8.h"
#include "engine/tokenizer/subword/byte_alphabet.h"

namespace evalrun::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Pieces = std::vector<std::string>;

// Pieces as the text they stand for, so that expectations are readable.
Pieces split_named(const char* name, std::string_view text) {
  Pieces pieces = pre_tokenizer_by_name(name)->pre_tokenizer.split(text, true);
  for (std::string& piece : pieces) piece = alphabet_to_bytes(piece);
  return pieces;
}

Pieces split_by(PreTokenizer::Step step, std::string_view text, bool at_start = true) {
  PreTokenizer pre;
  pre.add(std::move(step));
  return pre.split(text, at_start);
}

TEST(NamedPreTokenizer, Gpt2) {
  EXPECT_THAT(split_named("gpt-2", "I've 12  apples!!\n\n x"),
              ElementsAre("I", "'ve", " 12", " ", " apples", "!!", "\n\n", " x"));
  EXPECT_THAT(split_named("gpt-2", "DON'T"), ElementsAre("DON", "'", "T"));
  EXPECT_THAT(split_named("gpt-2", ""), IsEmpty());
}

TEST(NamedPreTokenizer, SmolLmCutsDigitsBeforeTheLookAheadSeesThem) {
  EXPECT_THAT(split_named("smollm", "a  12 b"), ElementsAre("a", "  ", "1", "2", " b"));
  EXPECT_THAT(split_named("smollm", "\n\n  3"), ElementsAre("\n\n  ", "3"));
  EXPECT_THAT(split_named("smollm", "x\u00B2\u2167"), ElementsAre("x", "\u00B2", "\u2167"));
}

TEST(NamedPreTokenizer, Llama3GroupsUpToThreeDigitsAndFoldsCase) {
  for (const char* name : {"llama-bpe", "llama3", "llama-v3"})
    EXPECT_THAT(split_named(name, "DON'T 12345 (ok)\r\n\n z"),
                ElementsAre("DON", "'T", " ", "123", "45", " (", "ok", ")\r\n\n", " z"));
  EXPECT_THAT(split_named("llama-bpe", "\tx  \n y   "), ElementsAre("\tx", "  \n", " y", "   "));
}

TEST(NamedPreTokenizer, Qwen2TakesSingleDigits) {
  EXPECT_THAT(split_named("qwen2", "we'LL 305kg"),
              ElementsAre("we", "'LL", " ", "3", "0", "5", "kg"));
  EXPECT_TRUE(pre_tokenizer_by_name("qwen2")->nfc);
  EXPECT_FALSE(pre_tokenizer_by_name("llama-bpe")->nfc);
  EXPECT_TRUE(pre_tokenizer_by_name("llama-bpe")->ignore_merges);
}

TEST(NamedPreTokenizer, FalconKeepsPunctuationRunsAndTriplesOfDigits) {
  EXPECT_THAT(split_named("falcon", "a=='b' 33333"),
              ElementsAre("a", "=='", "b", "'", " ", "333", "33"));
}

TEST(NamedPreTokenizer, UnknownNameHasNone) {
  EXPECT_FALSE(pre_tokenizer_by_name("tekken").has_value());
  for (const std::string& name : pre_tokenizer_names())
    EXPECT_TRUE(pre_tokenizer_by_name(name).has_value()) << name;
}

TEST(NamedPreTokenizer, WhiteSpaceIsUnicodesAndNothingElse) {
  // All of these are white space: one run, the last one joins no word because it is no plain space.
  EXPECT_THAT(split_named("gpt-2", "a\u00A0\u2003\u3000b"),
              ElementsAre("a", "\u00A0\u2003", "\u3000", "b"));
  // These are not: they are neither space, letter nor digit.
  for (const char* sign : {"\u200B", "\uFEFF", "\u180E"})
    EXPECT_THAT(split_named("gpt-2", std::string("a ") + sign + "b"),
                ElementsAre("a", std::string(" ") + sign, "b"));
}

TEST(Split, EveryBehavior) {
  const auto run = [](SplitBehavior behavior, bool invert) {
    return split_by(PreTokenizer::Split{Regex("-"), "", behavior, invert}, "a--b-");
  };
  EXPECT_THAT(run(SplitBehavior::kRemoved, false), ElementsAre("a", "b"));
  EXPECT_THAT(run(SplitBehavior::kRemoved, true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(run(SplitBehavior::kIsolated, false), ElementsAre("a", "-", "-", "b", "-"));
  EXPECT_THAT(run(SplitBehavior::kMergedWithPrevious, false), ElementsAre("a-", "-", "b-"));
  EXPECT_THAT(run(SplitBehavior::kMergedWithNext, false), ElementsAre("a", "-", "-b", "-"));
  EXPECT_THAT(run(SplitBehavior::kContiguous, false), ElementsAre("a", "--", "b", "-"));
}

TEST(Split, LiteralsAreNotPatterns) {
  EXPECT_THAT(
      split_by(PreTokenizer::Split{std::nullopt, ".", SplitBehavior::kRemoved, false}, "a.b"),
      ElementsAre("a", "b"));
}

TEST(Split, EmptyMatchesAreBorders) {
  EXPECT_THAT(split_by(PreTokenizer::Split{Regex("(?=[A-Z])"), "", SplitBehavior::kIsolated, false},
                       "anOldHat"),
              ElementsAre("an", "Old", "Hat"));
}

TEST(Metaspace, PrependsByScheme) {
  const auto run = [](PreTokenizer::Prepend prepend, bool at_start, bool split) {
    return split_by(PreTokenizer::Metaspace{"_", prepend, split}, "a b", at_start);
  };
  EXPECT_THAT(run(PreTokenizer::Prepend::kAlways, false, true), ElementsAre("_a", "_b"));
  EXPECT_THAT(run(PreTokenizer::Prepend::kFirst, true, true), ElementsAre("_a", "_b"));
  EXPECT_THAT(run(PreTokenizer::Prepend::kFirst, false, true), ElementsAre("a", "_b"));
  EXPECT_THAT(run(PreTokenizer::Prepend::kNever, true, false), ElementsAre("a_b"));
  EXPECT_THAT(split_by(PreTokenizer::Metaspace{"_", PreTokenizer::Prepend::kAlways, true}, " a"),
              ElementsAre("_a"));
}

TEST(Regex, RefusesBrokenPatterns) { EXPECT_THROW(Regex("(a"), std::invalid_argument); }

TEST(Regex, AMegabyteOfWhiteSpaceIsOneMatch) {
  // The look-ahead alternative backtracks over the whole run once; a step limit or a stack limit
  // that is too small shows here as an error.
  const std::string text(1 << 20, ' ');
  EXPECT_EQ(split_named("gpt-2", text).size(), 1u);
  EXPECT_EQ(split_named("llama-bpe", text + "x").size(), 2u);
}

}  // namespace
}  // namespace evalrun::engine
