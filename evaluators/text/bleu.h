// Sentence BLEU by the convention of sacreBLEU (Post 2018): sacrebleu.sentence_bleu with its
// defaults and one reference. 13a tokenizer, case kept, n-grams up to 4, exponential smoothing,
// effective order (only orders that the answer is long enough for count), brevity penalty.
// Compared with PyPI sacrebleu 2.6.0. BLEU was made for whole corpora; a mean over sentences is not
// the corpus BLEU that papers on translation report.
//
// Time and memory are linear in the texts.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evaluators/evaluator.h"

namespace evalrun::evaluators {

struct BleuScore {
  double bleu = 0;             // 0 to 100
  double brevity_penalty = 1;  // 0 for an empty answer to a reference that is not empty
  std::array<size_t, 4> matches{}, totals{};  // of n-grams, n = 1 to 4
  size_t n_answer = 0, n_reference = 0;       // tokens
};

BleuScore sentence_bleu(std::string_view answer, std::string_view reference);

// The 13a tokenizer: tokens separated by white space (one or more characters).
std::string tokenize_13a(std::string_view text);

// Value: BLEU, 0 to 100; facts: brevity penalty, lengths, matches and totals.
EvaluatorEntry bleu();

}  // namespace evalrun::evaluators
