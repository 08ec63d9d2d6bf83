#include "engine/base/error.h"
#include "evaluators/text/lcs.h"
#include "evaluators/text/rouge.h"
#include "evaluators/text/words.h"

namespace evalrun::evaluators {

namespace {

struct Text {
  std::vector<WordId> words;  // of all sentences
  std::vector<size_t> ends;   // of each sentence, in words
};

Text read(std::string_view text, WordIds& ids) {
  Text read;
  while (true) {
    const size_t stop = text.find('.');
    const std::string_view sentence = text.substr(0, stop);
    if (!sentence.empty()) {
      const size_t before = read.words.size();
      for_each_word(sentence, [&](std::string_view word) { read.words.push_back(ids.id(word)); });
      if (read.words.size() == before) read.words.push_back(ids.id(""));
      read.ends.push_back(read.words.size());
    }
    if (stop == std::string_view::npos) return read;
    text.remove_prefix(stop + 1);
  }
}

RougeScore from_sizes(const SetSizes& sizes) {
  const auto share = [&](size_t all) {
    return all == 0 ? 0.0 : static_cast<double>(sizes.common) / static_cast<double>(all);
  };
  RougeScore score;
  score.precision = share(sizes.a);
  score.recall = share(sizes.b);
  score.f = 2.0 * ((score.precision * score.recall) / (score.precision + score.recall + 1e-8));
  return score;
}

// Calls visit(sentence) for each.
template <typename Visit>
void for_each_sentence(const Text& text, Visit&& visit) {
  size_t begin = 0;
  for (const size_t end : text.ends) {
    visit(std::span<const WordId>(text.words).subspan(begin, end - begin));
    begin = end;
  }
}

RougeScore summary_level_lcs(const Text& answer, const Text& reference, size_t n_ids) {
  size_t steps = 0;
  for_each_sentence(answer, [&](std::span<const WordId> s) { steps += lcs_steps(0, s.size()); });
  size_t blocks = 0;
  for_each_sentence(answer, [&](std::span<const WordId> s) {
    blocks += lcs_steps(1, s.size()) - lcs_steps(0, s.size());
  });
  RougeScore score;
  if (steps > kMaxRougeSteps / reference.ends.size() ||
      blocks > kMaxRougeSteps / reference.words.size()) {
    score.status = "too long";
    return score;
  }
  // The union grows over all pairs of sentences, so their order does not matter.
  std::vector<uint8_t> in_union(n_ids, 0);
  Lcs lcs(n_ids);
  for_each_sentence(answer, [&](std::span<const WordId> answer_words) {
    lcs.set_b(answer_words);
    for_each_sentence(reference, [&](std::span<const WordId> reference_words) {
      lcs.walk(reference_words, [&](size_t i, size_t) { in_union[reference_words[i]] = 1; });
    });
  });
  SetSizes sizes = set_sizes(answer.words, reference.words, n_ids);
  sizes.common = 0;
  for (const uint8_t in : in_union) sizes.common += in;
  return from_sizes(sizes);
}

}  // namespace

RougeScore rouge_pltrdy(RougeKind kind, std::string_view answer_text,
                        std::string_view reference_text) {
  EVALRUN_CHECK(kind != RougeKind::kRougeLsum);
  WordIds ids;
  Text answer = read(answer_text, ids), reference = read(reference_text, ids);
  RougeScore score;
  if (answer.ends.empty())
    score.status = "empty answer";
  else if (reference.ends.empty())
    score.status = "empty reference";
  if (score.status != "ok") return score;
  if (kind == RougeKind::kRougeL) return summary_level_lcs(answer, reference, ids.size());
  if (kind == RougeKind::kRouge1)
    return from_sizes(set_sizes(answer.words, reference.words, ids.size()));
  NgramIds pairs(answer.words.size() + reference.words.size());
  std::vector<uint32_t> a = answer.words, b = reference.words;
  extend_ngrams(a, answer.words, 2, pairs);
  extend_ngrams(b, reference.words, 2, pairs);
  return from_sizes(set_sizes(a, b, pairs.size()));
}

}  // namespace evalrun::evaluators
