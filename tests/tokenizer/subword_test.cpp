#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/rng.h"
#include "engine/tokenizer/subword/added_tokens.h"
#include "engine/tokenizer/subword/bpe.h"
#include "engine/tokenizer/subword/spm.h"
#include "tests/tokenizer/test_files.h"

namespace evalrun::engine {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;
using Merges = std::vector<std::pair<std::string, std::string>>;

std::shared_ptr<const Vocabulary> vocabulary(std::vector<std::string> tokens) {
  return std::make_shared<Vocabulary>(std::move(tokens), "made-up", "tokens");
}

Ids encode(const SubwordModel& model, std::string_view word) {
  Ids ids;
  model.encode_word(word, ids);
  return ids;
}

TEST(Bpe, MergesByRankAndNotByPosition) {
  const auto v = vocabulary({"a", "b", "c", "bc", "ab", "abc"});
  const BpeModel model(v, {{"b", "c"}, {"a", "b"}, {"a", "bc"}}, {}, "f", "merges");
  EXPECT_THAT(encode(model, "abc"), ElementsAre(5));
  EXPECT_THAT(encode(model, "ab"), ElementsAre(4));
  EXPECT_THAT(encode(model, "abab"), ElementsAre(4, 4));
}

TEST(Bpe, MergesFirstPairFirstInARun) {
  const auto v = vocabulary({"a", "aa", "aaa"});
  const BpeModel model(v, {{"a", "a"}, {"aa", "a"}}, {}, "f", "merges");
  EXPECT_THAT(encode(model, "aaa"), ElementsAre(2));
  EXPECT_THAT(encode(model, "aaaaa"), ElementsAre(1, 2));
}

TEST(Bpe, UnknownCharactersVanishBeforeMerging) {
  const auto v = vocabulary({"!", "!!"});
  const BpeModel model(v, {{"!", "!"}}, {}, "f", "merges");
  EXPECT_THAT(encode(model, "!\x04!"), ElementsAre(1));
}

TEST(Bpe, FallsBackToBytesAndUnknowns) {
  const auto v = vocabulary({"<unk>", "a", "<0xC3>", "<0xA9>"});
  BpeOptions options;
  options.unk_id = 0, options.byte_fallback = options.fuse_unk = true;
  EXPECT_THAT(encode(BpeModel(v, {}, options, "f", "m"), "a\u00E9xya"), ElementsAre(1, 2, 3, 0, 1));
  options.fuse_unk = false;
  EXPECT_THAT(encode(BpeModel(v, {}, options, "f", "m"), "xya"), ElementsAre(0, 0, 1));
  options.byte_fallback = false;
  EXPECT_THAT(encode(BpeModel(v, {}, options, "f", "m"), "\u00E9"), ElementsAre(0));
}

TEST(Bpe, IgnoreMergesTakesAWholeWord) {
  const auto v = vocabulary({"a", "b", "c", "abc"});
  EXPECT_THAT(encode(BpeModel(v, {}, {}, "f", "m"), "abc"), ElementsAre(0, 1, 2));
  BpeOptions options;
  options.ignore_merges = true;
  EXPECT_THAT(encode(BpeModel(v, {}, options, "f", "m"), "abc"), ElementsAre(3));
}

TEST(Bpe, MergesOfUnknownTokensAreAnError) {
  const auto v = vocabulary({"a", "b"});
  EXPECT_THAT(testing::data_error_of([&] {
                BpeModel(v, {{"a", "b"}}, {}, "file.json", "model.merges");
              }),
              ::testing::AllOf(::testing::HasSubstr("file.json: model.merges[0]"),
                               ::testing::HasSubstr("'ab'")));
}

// The textbook algorithm: look at all pairs, merge the best, start again.
Ids merge_slowly(const Vocabulary& v, const Merges& merges, std::string_view word) {
  std::vector<std::string> parts;
  for (char c : word) parts.emplace_back(1, c);
  while (true) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1])
          best_rank = rank, best_at = i;
    if (best_rank == merges.size()) break;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(*v.find(part));
  return ids;
}

TEST(Bpe, EqualsTheTextbookOnRandomVocabularies) {
  base::Rng rng(20240607);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    Merges merges;
    while (merges.size() < 30) {
      const std::string left = tokens[rng.below(tokens.size())];
      const std::string right = tokens[rng.below(tokens.size())];
      if (left.size() + right.size() > 8) continue;
      if (std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end()) continue;
      merges.emplace_back(left, right);
      if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end())
        tokens.push_back(left + right);
    }
    const auto v = vocabulary(tokens);
    const BpeModel model(v, merges, {}, "f", "merges");
    for (int i = 0; i < 20; ++i) {
      std::string word;
      for (uint64_t n = rng.below(40); n > 0; --n) word.push_back("abc"[rng.below(3)]);
      EXPECT_EQ(encode(model, word), merge_slowly(*v, merges, word))
          << "round " << round << " " << word;
    }
  }
}

// A word of a million characters: an algorithm that is quadratic in its length does not come back.
TEST(Bpe, AMegabyteWithoutASpaceIsDone) {
  const auto v = vocabulary({"a", "aa", "aaaa"});
  const BpeModel model(v, {{"a", "a"}, {"aa", "aa"}}, {}, "f", "merges");
  const Ids ids = encode(model, std::string((1 << 20) + 3, 'a'));
  EXPECT_EQ(ids.size(), (1u << 18) + 2);
  EXPECT_EQ(ids.back(), 0);
}

TEST(Spm, HighestScoreFirstThenLeftmost) {
  const auto v = vocabulary({"a", "b", "c", "ab", "bc"});
  EXPECT_THAT(encode(SpmModel(v, {0, 0, 0, -2, -1}, {}), "abc"), ElementsAre(0, 4));
  EXPECT_THAT(encode(SpmModel(v, {0, 0, 0, -1, -1}, {}), "abc"), ElementsAre(3, 2));
}

TEST(Spm, WhatIsNoTokenBecomesBytesOrUnknown) {
  const auto v = vocabulary({"<unk>", "a", "<0xC3>", "<0xA9>"});
  EXPECT_THAT(encode(SpmModel(v, {0, 0, 0, 0}, 0), "a\u00E9z"), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(encode(SpmModel(v, {0, 0, 0, 0}, {}), "z"), ElementsAre());
}

TEST(Spm, AMegabyteWithoutASpaceIsDone) {
  const auto v = vocabulary({"a", "aa", "aaaa"});
  EXPECT_EQ(encode(SpmModel(v, {0, -1, -2}, {}), std::string(1 << 20, 'a')).size(), 1u << 18);
}

std::vector<std::pair<std::string, int32_t>> sections(const std::vector<AddedToken>& tokens,
                                                      std::string_view text, bool special = true) {
  std::vector<std::pair<std::string, int32_t>> out;
  const AddedTokenMatcher matcher(tokens);
  for (const Section& s : matcher.split(text, special)) out.emplace_back(s.text, s.id);
  return out;
}

AddedToken token(int32_t id, const char* content, bool special = true) {
  AddedToken t;
  t.id = id, t.content = content, t.special = special;
  return t;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const std::vector<AddedToken> tokens = {token(1, "<a>"), token(2, "<a><b>"), token(3, "><")};
  EXPECT_THAT(sections(tokens, "x<a><b>y<a>"),
              ElementsAre(::testing::Pair("x", -1), ::testing::Pair("<a><b>", 2),
                          ::testing::Pair("y", -1), ::testing::Pair("<a>", 1)));
  EXPECT_THAT(sections(tokens, "<a><a>"),
              ElementsAre(::testing::Pair("<a>", 1), ::testing::Pair("<a>", 1)));
}

TEST(AddedTokens, OnlySpecialOnesCanBeText) {
  const std::vector<AddedToken> tokens = {token(1, "<s>"), token(2, "[x]", false)};
  EXPECT_THAT(sections(tokens, "<s>[x]", false),
              ElementsAre(::testing::Pair("<s>", -1), ::testing::Pair("[x]", 2)));
}

TEST(AddedTokens, SwallowWhiteSpaceAndRespectWords) {
  AddedToken t = token(1, "ab");
  t.lstrip = true;
  EXPECT_THAT(sections({t}, "x \u00A0ab y"),
              ElementsAre(::testing::Pair("x", -1), ::testing::Pair(" \u00A0ab", 1),
                          ::testing::Pair(" y", -1)));
  t.lstrip = false, t.rstrip = true;
  EXPECT_THAT(
      sections({t}, " ab  y"),
      ElementsAre(::testing::Pair(" ", -1), ::testing::Pair("ab  ", 1), ::testing::Pair("y", -1)));
  t.rstrip = false, t.single_word = true;
  EXPECT_THAT(sections({t}, "cab ab, ab\u00E9"),
              ElementsAre(::testing::Pair("cab ", -1), ::testing::Pair("ab", 1),
                          ::testing::Pair(", ab\u00E9", -1)));
}

}  // namespace
}  // namespace evalrun::engine
