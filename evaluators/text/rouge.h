// ROUGE by two conventions whose figures differ by points on the same pair; neither is "the" ROUGE.
//
// pltrdy: PyPI `rouge` 1.0.1, Rouge().get_scores() with its defaults.
//   Sentences end at every "."; words at white space, case and punctuation kept, and a blank
//   sentence is one empty word. N-grams (across sentences) and words are sets: repetition does not
//   count. rougeL is the summary level: the words of a longest common subsequence of every pair of
//   sentences, united. F = 2PR / (P + R + 1e-8).
// google: PyPI `rouge-score` 0.1.2, RougeScorer.
//   Lower-case, words are runs of a-z and 0-9 (text in other scripts disappears), counted with
//   repetition. rougeL: one subsequence over the whole text. rougeLsum: sentences are lines, their
//   subsequences united, hits clipped by the counts of each word. F = 2PR / (P + R), 0 when both
//   are.
//
// Time grows with the product of the two lengths, over 64 (lcs.h); memory as lcs.h says. No
// recursion: where the originals' recursion ends in an error the value is the one that they define.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

enum class RougeKind { kRouge1, kRouge2, kRougeL, kRougeLsum };

struct RougeScore {
  // "ok"; "empty answer", "empty reference": no sentence to compare, where the original raises an
  // error (pltrdy only); "too long": more than kMaxRougeSteps.
  std::string status = "ok";
  double precision = 0, recall = 0, f = 0;
};

// Steps of lcs_steps() that one score may take: some seconds. An answer of 10 MB against a
// reference of 1,000 words is below it.
inline constexpr size_t kMaxRougeSteps = size_t{1} << 31;

// kind: not kRougeLsum, which this convention does not have.
RougeScore rouge_pltrdy(RougeKind kind, std::string_view answer, std::string_view reference);

struct GoogleRougeOptions {
  // Porter stems of words longer than three letters. Off as in RougeScorer and the Hugging Face
  // `evaluate` metric; summarisation papers often turn it on.
  bool stemmer = false;
};
RougeScore rouge_google(RougeKind kind, std::string_view answer, std::string_view reference,
                        const GoogleRougeOptions& options = {});

// rouge1, rouge2, rougeL @pltrdy-1.0.1; rouge1, rouge2, rougeL, rougeLsum @rouge_score-0.1.2.
// Value: F, 0 to 1; facts: precision and recall.
std::vector<EvaluatorEntry> rouge();

}  // namespace evalrun::evaluators
