#include <algorithm>
#include <array>
#include <deque>

#include "evaluators/text/lcs.h"
#include "evaluators/text/porter.h"
#include "evaluators/text/rouge.h"
#include "evaluators/text/words.h"

namespace evalrun::evaluators {

namespace {

// Lower-case; 0 for what stands between words, new lines apart. Nothing in a word is below '\n'.
constexpr std::array<char, 256> kWordBytes = [] {
  std::array<char, 256> table{};
  for (size_t c = 0; c < 26; ++c) table['a' + c] = table['A' + c] = static_cast<char>('a' + c);
  for (size_t c = '0'; c <= '9'; ++c) table[c] = static_cast<char>(c);
  table['\n'] = '\n';
  return table;
}();

// The text in lower case with \0 between words and \n kept. Two characters outside ASCII have
// lower-case forms inside it: the Kelvin sign (k) and the capital I with a dot (i and a combining
// dot, which ends the word).
std::string normalise(std::string_view text) {
  std::string out(text.size(), '\0');
  size_t n = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      out[n++] = kWordBytes[byte];
    } else if (text.substr(at, 3) == "\u212a") {
      out[n++] = 'k';
      at += 2;
    } else if (text.substr(at, 2) == "\u0130") {
      out[n++] = 'i';
      out[n++] = '\0';
      ++at;
    } else {
      out[n++] = '\0';
    }
  }
  out.resize(n);
  return out;
}

struct Text {
  std::vector<WordId> words;
  std::vector<size_t> ends;  // of each line that is not empty, in words; a line may have no words
};

class Reader {
 public:
  explicit Reader(const GoogleRougeOptions& options) : options_(options) {}

  Text read(std::string_view text) {
    buffers_.push_back(normalise(text));
    const std::string& bytes = buffers_.back();
    Text read;
    size_t begin = 0, line = 0;
    for (size_t at = 0; at <= bytes.size(); ++at) {
      while (at < bytes.size() && bytes[at] > '\n') ++at;
      const char c = at < bytes.size() ? bytes[at] : '\n';
      if (at > begin) add(std::string_view(bytes).substr(begin, at - begin), read);
      begin = at + 1;
      if (c == '\n') {
        if (at > line) read.ends.push_back(read.words.size());
        line = at + 1;
      }
    }
    return read;
  }
  size_t n_ids() const { return stems_.size(); }

 private:
  static constexpr WordId kDropped = ~WordId{0};

  void add(std::string_view word, Text& text) {
    if (!options_.stemmer) {
      text.words.push_back(stems_.id(word));
      return;
    }
    const WordId known = words_.id(word);
    if (known == stem_of_.size()) {
      buffers_.push_back(word.size() > 3 ? porter_stem(word) : std::string(word));
      stem_of_.push_back(buffers_.back().empty() ? kDropped : stems_.id(buffers_.back()));
    }
    if (stem_of_[known] != kDropped) text.words.push_back(stem_of_[known]);
  }

  GoogleRougeOptions options_;
  std::deque<std::string> buffers_;  // what the ids are views of
  WordIds words_, stems_;            // words_: with a stemmer only
  std::vector<WordId> stem_of_;
};

double share(size_t part, size_t all) {
  return static_cast<double>(part) / static_cast<double>(all);
}

RougeScore from_hits(size_t hits, size_t n_answer, size_t n_reference) {
  RougeScore score;
  score.precision = share(hits, n_answer);
  score.recall = share(hits, n_reference);
  if (score.precision + score.recall > 0)
    score.f = 2 * score.precision * score.recall / (score.precision + score.recall);
  return score;
}

RougeScore too_long() {
  RougeScore score;
  score.status = "too long";
  return score;
}

std::span<const WordId> line_of(const Text& text, size_t line) {
  const size_t begin = line == 0 ? 0 : text.ends[line - 1];
  return std::span<const WordId>(text.words).subspan(begin, text.ends[line] - begin);
}

// Which of several longest subsequences counts: the original goes to the shorter reference where
// both directions are as good, so the reference is b (lcs.h).
RougeScore summary_level_lcs(const Text& answer, const Text& reference, size_t n_ids) {
  size_t per_line = 0, per_word = 0;
  for (size_t r = 0; r < reference.ends.size(); ++r) {
    const size_t n = line_of(reference, r).size();
    per_line += lcs_steps(0, n);
    per_word += lcs_steps(1, n) - lcs_steps(0, n);
  }
  if (per_line > kMaxRougeSteps / answer.ends.size() ||
      per_word > kMaxRougeSteps / answer.words.size())
    return too_long();
  std::vector<size_t> left_answer(n_ids, 0), left_reference(n_ids, 0);
  for (const WordId word : answer.words) ++left_answer[word];
  for (const WordId word : reference.words) ++left_reference[word];
  size_t hits = 0;
  Lcs lcs(n_ids);
  std::vector<uint8_t> in_union;
  for (size_t r = 0; r < reference.ends.size(); ++r) {
    const std::span<const WordId> line = line_of(reference, r);
    lcs.set_b(line);
    in_union.assign(line.size(), 0);
    for (size_t a = 0; a < answer.ends.size(); ++a)
      lcs.walk(line_of(answer, a), [&](size_t, size_t j) { in_union[j] = 1; });
    for (size_t j = 0; j < line.size(); ++j) {
      size_t& in_answer = left_answer[line[j]];
      size_t& in_reference = left_reference[line[j]];
      if (in_union[j] == 0 || in_answer == 0 || in_reference == 0) continue;
      ++hits;
      --in_answer;
      --in_reference;
    }
  }
  return from_hits(hits, answer.words.size(), reference.words.size());
}

RougeScore ngram_score(const Text& answer, const Text& reference, size_t n, size_t n_word_ids) {
  std::vector<uint32_t> a = answer.words, b = reference.words;
  NgramIds pairs(n == 2 ? b.size() : 0);
  if (n == 2) {
    extend_ngrams(b, reference.words, 2, pairs);
    extend_known_ngrams(a, answer.words, 2, pairs);
  }
  const size_t hits = clipped_matches(b, a, n == 1 ? n_word_ids : pairs.size());
  return from_hits(hits, std::max<size_t>(a.size(), 1), std::max<size_t>(b.size(), 1));
}

}  // namespace

RougeScore rouge_google(RougeKind kind, std::string_view answer_text,
                        std::string_view reference_text, const GoogleRougeOptions& options) {
  Reader reader(options);
  const Text answer = reader.read(answer_text), reference = reader.read(reference_text);
  if (kind == RougeKind::kRouge1) return ngram_score(answer, reference, 1, reader.n_ids());
  if (kind == RougeKind::kRouge2) return ngram_score(answer, reference, 2, reader.n_ids());
  if (answer.words.empty() || reference.words.empty()) return {};
  if (kind == RougeKind::kRougeLsum) return summary_level_lcs(answer, reference, reader.n_ids());
  // The length does not depend on the order; the shorter one as b needs the shorter rows.
  const bool answer_is_longer = answer.words.size() > reference.words.size();
  const Text& a = answer_is_longer ? answer : reference;
  const Text& b = answer_is_longer ? reference : answer;
  if (lcs_steps(1, b.words.size()) > kMaxRougeSteps / a.words.size()) return too_long();
  Lcs lcs(reader.n_ids());
  lcs.set_b(b.words);
  return from_hits(lcs.length(a.words), answer.words.size(), reference.words.size());
}

}  // namespace evalrun::evaluators
