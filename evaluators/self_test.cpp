#include "evaluators/self_test.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

namespace {

struct Text {
  const char *answer, *reference;
};
// Values in the order of the texts; computed by the packages that the conventions are named after.
struct Expected {
  const char* evaluator;
  std::vector<double> values;
};

constexpr std::array<Text, 3> kSummaries{
    {{"The cat sat. The dog ran away.", "The dog ran. The cat sat down."},
     {"a b c b a\nc a b", "b a c\na b c a"},
     {"The Café, open 9-5; 中文 well", "the café open 9-5 well"}}};

// Thirty words: ten at the beginning, ten in the middle, ten at the end.
#define EVALRUN_MIDDLE "and then and then and then and then and then "
constexpr std::array<Text, 3> kTopics{
    {{"whale ocean whale ocean whale ocean whale ocean whale ocean " EVALRUN_MIDDLE
      "ocean whale ocean whale ocean whale ocean whale ocean whale",
      ""},
     {"whale ocean whale ocean whale ocean whale ocean whale ocean " EVALRUN_MIDDLE
      "whale sand whale sand whale sand whale sand whale sand",
      ""},
     {"one two six ten one two six ten one whale " EVALRUN_MIDDLE
      "Whale! bread butter one two six ten one two six",
      ""}}};
#undef EVALRUN_MIDDLE

constexpr std::array<Text, 5> kNumbers{{{"So #### 18. No: 20", "... #### 18"},
                                        {"She earns $1,000.00", "#### 1,000"},
                                        {"from 7-5", "#### 5"},
                                        {"5.0", "#### 5"},
                                        {"no idea", "#### 5"}}};

const std::vector<Expected>& summary_values() {
  static const std::vector<Expected> kValues = {
      {"rouge1@pltrdy-1.0.1", {0.8333333283333335, 0.999999995, 0.36363635867768596}},
      {"rouge2@pltrdy-1.0.1", {0.6666666616666668, 0.9090909041322315, 0.0}},
      {"rougeL@pltrdy-1.0.1", {0.8333333283333335, 0.999999995, 0.36363635867768596}},
      {"rouge1@rouge_score-0.1.2", {0.8571428571428571, 0.9333333333333333, 1.0}},
      {"rouge2@rouge_score-0.1.2", {0.6666666666666666, 0.7692307692307692, 1.0}},
      {"rougeL@rouge_score-0.1.2", {0.42857142857142855, 0.6666666666666666, 1.0}},
      {"rougeLsum@rouge_score-0.1.2", {0.42857142857142855, 0.7999999999999999, 1.0}},
      {"bleu@sacrebleu-2.6.0", {33.9132609103075, 63.894310424627285, 27.77619034011791}},
      // By hand, of the answers alone.
      {"type_token_ratio@evalrun", {6.0 / 7, 3.0 / 8, 1}},
      {"repeats@evalrun", {0, 0, 0}},
      {"sentence_words@evalrun", {3.5, 4, 6}}};
  return kValues;
}

const std::vector<Expected>& number_values() {
  static const std::vector<Expected> kValues = {{"gsm8k_strict@lm-eval-3", {1, 0, 0, 0, 0}},
                                                {"gsm8k_flexible@lm-eval-3", {0, 0, 0, 0, 0}},
                                                {"gsm8k@evalrun", {0, 1, 1, 1, 0}}};
  return kValues;
}

const std::vector<Expected>& topic_values() {
  static const std::vector<Expected> kValues = {{"kept_topic@evalrun", {1, 0.5, 1.0 / 3}},
                                                {"kept_pairs@evalrun", {1, 0, 4.0 / 7}}};
  return kValues;
}

template <size_t N>
int check(const EvaluatorEntry& entry, const std::array<Text, N>& texts,
          const std::vector<Expected>& table, std::vector<std::string>& problems) {
  int n = 0;
  for (const Expected& expected : table) {
    if (expected.evaluator != entry.info.id()) continue;
    for (size_t i = 0; i < N; ++i, ++n) {
      datasets::Prompt prompt;
      prompt.reference = texts[i].reference;
      const results::ScoreRecord record = entry.score(prompt, {texts[i].answer}, {});
      const double found = record.value.value_or(std::nan(""));
      // Room for the last bits of another libm's logarithm.
      if (!(std::abs(found - expected.values[i]) <= 1e-12 * std::max(1.0, expected.values[i])))
        problems.push_back(fmt::format("{}: {} instead of {} for '{}'", entry.info.id(), found,
                                       expected.values[i], texts[i].answer));
    }
  }
  return n;
}

}  // namespace

SelfTestResult self_test() {
  SelfTestResult result;
  for (const auto& [id, entry] : evaluator_registry().entries()) {
    if (entry.info.deferred || entry.info.by_model) continue;
    ++result.n_evaluators;
    const int n = check(entry, kSummaries, summary_values(), result.problems) +
                  check(entry, kTopics, topic_values(), result.problems) +
                  check(entry, kNumbers, number_values(), result.problems);
    if (n == 0) result.problems.push_back(id + ": no vector in evaluators/self_test.cpp");
    result.n_vectors += n;
  }
  return result;
}

}  // namespace evalrun::evaluators
