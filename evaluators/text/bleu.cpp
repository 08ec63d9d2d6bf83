#include "evaluators/text/bleu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "evaluators/reference_score.h"
#include "evaluators/text/words.h"

namespace evalrun::evaluators {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }
// ASCII but letters, digits, control characters, and ' - . , (and the blank, which the rule puts
// more blanks around: they end no word that it does not end itself).
bool is_symbol(char c) {
  return (c > ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin);
    out += to;
    begin = at + from.size();
  }
  out.append(text, begin);
  text = std::move(out);
}

std::string_view without_final_white_space(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n)
    if (white_space_at(text, text.size() - n) == n) {
      text.remove_suffix(n);
      n = 0;
    }
  return text;
}

// One pass per rule, as the rules are defined one after the other and each sees the blanks that the
// earlier ones put in. What a rule has matched no match after it may use again: apply(at,
// free_from) is asked at each byte of the kind, free_from being the first byte that is still free,
// and returns the bytes to put instead of text[begin, end), or an end of 0 where it does not match.
struct Match {
  size_t begin = 0, end = 0;
  std::array<char, 4> bytes{};
  size_t n_bytes = 0;
};
template <typename IsKind, typename Apply>
void rewrite(std::string& text, std::string& out, const IsKind& is_kind, const Apply& apply) {
  out.clear();
  size_t free_from = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_kind(text[at])) continue;
    const Match match = apply(at, free_from);
    if (match.end == 0) continue;
    out.append(text, free_from, match.begin - free_from);
    out.append(match.bytes.data(), match.n_bytes);
    free_from = match.end;
    at = match.end - 1;
  }
  out.append(text, free_from);
  text.swap(out);
}

std::vector<WordId> word_ids(std::string_view text, WordIds& ids) {
  std::vector<WordId> words;
  for_each_word(text, [&](std::string_view word) { words.push_back(ids.id(word)); });
  return words;
}

double combine(const BleuScore& score) {
  double smoothing = 1, log_sum = 0;
  size_t order = 0;
  for (; order < score.totals.size() && score.totals[order] > 0; ++order) {
    const auto total = static_cast<double>(score.totals[order]);
    double precision = 100.0 * static_cast<double>(score.matches[order]) / total;
    if (score.matches[order] == 0) {
      smoothing *= 2;
      precision = 100.0 / (smoothing * total);
    }
    log_sum += std::log(precision);
  }
  return score.brevity_penalty * std::exp(log_sum / static_cast<double>(order));
}

}  // namespace

std::string tokenize_13a(std::string_view original) {
  std::string text(without_final_white_space(original)), buffer;
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  std::replace(text.begin(), text.end(), '\n', ' ');
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  text.insert(text.begin(), ' ');
  text += ' ';
  rewrite(text, buffer, is_symbol, [&](size_t at, size_t) -> Match {
    return {at, at + 1, {' ', text[at], ' '}, 3};
  });
  // Rules on pairs look at bytes: of a character of several bytes only the first or the last
  // counts.
  rewrite(text, buffer, is_point, [&](size_t at, size_t free_from) -> Match {
    if (at == free_from || is_digit(text[at - 1])) return {};
    return {at - 1, at + 1, {text[at - 1], ' ', text[at], ' '}, 4};
  });
  rewrite(text, buffer, is_point, [&](size_t at, size_t) -> Match {
    if (at + 1 == text.size() || is_digit(text[at + 1])) return {};
    return {at, at + 2, {' ', text[at], ' ', text[at + 1]}, 4};
  });
  rewrite(
      text, buffer, [](char c) { return c == '-'; },
      [&](size_t at, size_t free_from) -> Match {
        if (at == free_from || !is_digit(text[at - 1])) return {};
        return {at - 1, at + 1, {text[at - 1], ' ', '-', ' '}, 4};
      });
  return text;
}

BleuScore sentence_bleu(std::string_view answer_text, std::string_view reference_text) {
  const std::string answer_tokens = tokenize_13a(answer_text);
  const std::string reference_tokens = tokenize_13a(reference_text);
  WordIds ids;
  const std::vector<WordId> answer = word_ids(answer_tokens, ids);
  const std::vector<WordId> reference = word_ids(reference_tokens, ids);
  BleuScore score;
  score.n_answer = answer.size();
  score.n_reference = reference.size();
  if (answer.size() < reference.size())
    score.brevity_penalty = answer.empty() ? 0
                                           : std::exp(1 - static_cast<double>(reference.size()) /
                                                              static_cast<double>(answer.size()));
  std::vector<uint32_t> a = answer, r = reference;
  size_t n_ids = ids.size();
  for (size_t n = 1; n <= score.matches.size(); ++n) {
    if (n > 1) {
      NgramIds grams(r.size());
      extend_ngrams(r, reference, n, grams);
      extend_known_ngrams(a, answer, n, grams);
      n_ids = grams.size();
    }
    score.totals[n - 1] = a.size();
    score.matches[n - 1] = clipped_matches(r, a, n_ids);
  }
  // Without a common word there is no smoothing either.
  if (score.matches[0] > 0) score.bleu = combine(score);
  return score;
}

EvaluatorEntry bleu() {
  EvaluatorInfo info;
  info.name = "bleu";
  info.version = "sacrebleu-2.6.0";
  info.summary = "sentence BLEU, sacreBLEU's defaults (13a tokens, exponential smoothing)";
  info.unit = "BLEU, 0 to 100";
  info.similarity = true;
  return compared_with_reference(info, [](std::string_view answer, std::string_view reference,
                                          results::ScoreRecord& record) {
    const BleuScore result = sentence_bleu(answer, reference);
    record.value = result.bleu;
    record.facts = fmt::format(R"({{"brevity_penalty":{},"answer_tokens":{},"reference_tokens":{},)"
                               R"("matches":[{}],"totals":[{}]}})",
                               result.brevity_penalty, result.n_answer, result.n_reference,
                               fmt::join(result.matches, ","), fmt::join(result.totals, ","));
  });
}

}  // namespace evalrun::evaluators
