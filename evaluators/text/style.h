// What an answer is like, without a reference: figures in which a method that changes a model's
// distribution a little may show over a long text. They are no quality, and none is better high or
// low; what counts is the difference between arms.
//
// Words are runs without white space, in lower case (ASCII), without punctuation (ASCII) at both
// ends; runs of punctuation alone are none. The last turn's answer counts. Linear in its length.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

inline constexpr size_t kTypeTokenWindow = 100;  // words
inline constexpr size_t kRepeatWords = 4;
inline constexpr size_t kTopicLetters = 4;  // bytes that a word of a topic has at least
inline constexpr size_t kTopicWords = 30;   // words that an answer has at least, for its topic

struct TextStyle {
  size_t words = 0, sentences = 0;
  // Different words over words, mean over all windows of kTypeTokenWindow words (MATTR: Covington
  // and McFall 2010), so that it does not fall with the length; of the whole where that is shorter.
  std::optional<double> type_token_ratio;  // absent without words
  // Share of the runs of kRepeatWords words that stood before in the answer.
  std::optional<double> repeats;  // absent for shorter answers
  // Words per sentence: one ends at . ! or ? before white space, and at a line's end.
  std::optional<double> sentence_words;  // absent without words
  // Of the different words of the last third, kTopicLetters long at least, the share that stands in
  // the first third; pairs the same of all words. Low = the text has left where it began.
  std::optional<double> kept_words, kept_pairs;  // absent below kTopicWords, and without such words
};
TextStyle text_style(std::string_view text);

// type_token_ratio, repeats, sentence_words, kept_topic, kept_pairs @evalrun. A score without a
// value is "no answer" or "too short".
std::vector<EvaluatorEntry> style();

}  // namespace evalrun::evaluators
