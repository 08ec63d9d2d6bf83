// What an answer is like, against counts by hand.
#include "evaluators/text/style.h"

#include <gmock/gmock.h>

#include <string>

namespace evalrun::evaluators {
namespace {

TEST(TextStyle, WordsAndSentencesByHand) {
  const TextStyle s = text_style("The cat sat. \"The Cat\" (sat)?  3.5 cats -- no\nend");
  // the cat sat | the cat sat | 3.5 cats no | end
  EXPECT_EQ(s.words, 10u);
  EXPECT_EQ(s.sentences, 4u) << "3.5 ends no sentence, a line does";
  EXPECT_DOUBLE_EQ(*s.sentence_words, 2.5);
  EXPECT_DOUBLE_EQ(*s.type_token_ratio, 7.0 / 10);
  EXPECT_DOUBLE_EQ(*s.repeats, 0);
  EXPECT_FALSE(s.kept_words) << "fewer than 30 words";
}

TEST(TextStyle, RepeatsAreTheRunsThatStoodBefore) {
  EXPECT_DOUBLE_EQ(*text_style("a b c d a b c d a b c d").repeats, 1 - 4.0 / 9);
  EXPECT_DOUBLE_EQ(*text_style("a a a a a").repeats, 0.5);
  EXPECT_FALSE(text_style("a b c").repeats);
}

// A text twice as long of the same kind: the plain ratio would halve.
TEST(TextStyle, TheTypeTokenRatioDoesNotFallWithTheLength) {
  std::string once;
  for (int i = 0; i < 100; ++i) once += "w" + std::to_string(i % 50) + " ";
  EXPECT_DOUBLE_EQ(*text_style(once).type_token_ratio, 0.5);
  EXPECT_DOUBLE_EQ(*text_style(once + once).type_token_ratio, 0.5);
  std::string rising;
  for (int i = 0; i < 101; ++i) rising += (i < 100 ? "same " : "other");
  EXPECT_DOUBLE_EQ(*text_style(rising).type_token_ratio, (0.01 + 0.02) / 2);
}

TEST(TextStyle, ATopicThatIsLeft) {
  const auto text = [](const std::string& first, const std::string& last) {
    std::string out;
    for (int i = 0; i < 5; ++i) out += first + " ";
    for (int i = 0; i < 10; ++i) out += "middle ";
    for (int i = 0; i < 5; ++i) out += last + " ";
    return out;
  };
  const TextStyle kept = text_style(text("whale ocean", "ocean whale"));
  EXPECT_EQ(kept.words, 30u);
  EXPECT_DOUBLE_EQ(*kept.kept_words, 1);
  EXPECT_DOUBLE_EQ(*kept.kept_pairs, 1);
  const TextStyle half = text_style(text("whale ocean", "whale desert"));
  EXPECT_DOUBLE_EQ(*half.kept_words, 0.5);
  EXPECT_DOUBLE_EQ(*half.kept_pairs, 0);
  EXPECT_FALSE(text_style(text("a of", "of a")).kept_words) << "no word of four letters";
}

TEST(TextStyle, OddTextsGiveNoFigureRatherThanNaN) {
  for (const char* text : {"", " \n\t", "... !!! --", "\xff\xfe"}) {
    const TextStyle s = text_style(text);
    for (const auto& figure : {s.type_token_ratio, s.repeats, s.sentence_words, s.kept_words})
      EXPECT_TRUE(!figure || *figure >= 0) << text;
  }
  EXPECT_FALSE(text_style("... !!!").sentence_words);
  EXPECT_DOUBLE_EQ(*text_style("one").sentence_words, 1);
  // Words outside ASCII keep their bytes; no-break spaces part them.
  EXPECT_EQ(text_style("\xc3\x89t\xc3\xa9\xc2\xa0\xc3\xa9t\xc3\xa9").words, 2u);
}

TEST(TextStyle, Scores) {
  for (const EvaluatorEntry& entry : style()) {
    EXPECT_EQ(entry.score({}, {}, {}).status, "no answer");
    EXPECT_EQ(entry.score({}, {"..."}, {}).status, "too short") << entry.info.name;
    EXPECT_FALSE(entry.score({}, {"..."}, {}).value);
  }
  const EvaluatorEntry& sentences = find_evaluator("sentence_words");
  EXPECT_DOUBLE_EQ(*sentences.score({}, {"No. Not this.", "One two. Three."}, {}).value, 1.5)
      << "the last turn";
}

}  // namespace
}  // namespace evalrun::evaluators
