#include "evaluators/text/style.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "evaluators/text/words.h"

namespace evalrun::evaluators {
namespace {

bool is_punctuation(char c) { return std::ispunct(static_cast<unsigned char>(c)) != 0; }

// Lower-case ASCII of the text as a whole, so that words can be views of it.
std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view bare(std::string_view word) {
  while (!word.empty() && is_punctuation(word.front())) word.remove_prefix(1);
  while (!word.empty() && is_punctuation(word.back())) word.remove_suffix(1);
  return word;
}

struct StyledWord {
  WordId id;
  bool long_enough;  // for a topic
};

std::vector<StyledWord> words_of(std::string_view text, WordIds& ids) {
  std::vector<StyledWord> words;
  for_each_word(text, [&](std::string_view run) {
    if (const std::string_view word = bare(run); !word.empty())
      words.push_back({ids.id(word), word.size() >= kTopicLetters});
  });
  return words;
}

size_t sentences_in(std::string_view text) {
  size_t sentences = 0;
  bool open = false;  // a word has come since the last end
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool ends = c == '\n' || ((c == '.' || c == '!' || c == '?') &&
                                    (i + 1 == text.size() || white_space_at(text, i + 1) > 0));
    if (ends) {
      sentences += open ? 1 : 0;
      open = false;
    } else if (!is_punctuation(c) && white_space_at(text, i) == 0) {
      open = true;
    }
  }
  return sentences + (open ? 1 : 0);
}

double moving_type_token_ratio(std::span<const StyledWord> words, size_t n_ids) {
  const size_t window = std::min(kTypeTokenWindow, words.size());
  std::vector<size_t> count(n_ids, 0);
  size_t different = 0, windows = 0;
  double sum = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    different += count[words[i].id]++ == 0 ? 1 : 0;
    if (i >= window) different -= --count[words[i - window].id] == 0 ? 1 : 0;
    if (i + 1 < window) continue;
    sum += static_cast<double>(different) / static_cast<double>(window);
    ++windows;
  }
  return sum / static_cast<double>(windows);
}

double repeated_share(std::span<const WordId> words) {
  std::vector<uint32_t> grams(words.begin(), words.end());
  size_t n_ids = 0;
  for (size_t n = 2; n <= kRepeatWords; ++n) {
    NgramIds ids(grams.size());
    extend_ngrams(grams, words, n, ids);
    n_ids = ids.size();
  }
  return 1 - static_cast<double>(n_ids) / static_cast<double>(grams.size());
}

template <typename Item>
std::optional<double> kept_share(const std::set<Item>& first, const std::set<Item>& last) {
  if (last.empty()) return std::nullopt;
  const auto kept =
      std::count_if(last.begin(), last.end(), [&](const Item& x) { return first.contains(x); });
  return static_cast<double>(kept) / static_cast<double>(last.size());
}

void find_topic(std::span<const StyledWord> words, TextStyle& style) {
  const size_t third = words.size() / 3;
  const std::span<const StyledWord> parts[] = {words.first(third), words.last(third)};
  std::set<WordId> topic[2];
  std::set<std::pair<WordId, WordId>> pairs[2];
  for (size_t p = 0; p < 2; ++p)
    for (size_t i = 0; i < third; ++i) {
      if (parts[p][i].long_enough) topic[p].insert(parts[p][i].id);
      if (i > 0) pairs[p].insert({parts[p][i - 1].id, parts[p][i].id});
    }
  style.kept_words = kept_share(topic[0], topic[1]);
  style.kept_pairs = kept_share(pairs[0], pairs[1]);
}

EvaluatorEntry style_entry(std::string name, std::string summary, std::string unit,
                           std::optional<double> TextStyle::*figure) {
  EvaluatorInfo info;
  info.name = std::move(name);
  info.version = "evalrun";
  info.summary = std::move(summary);
  info.unit = std::move(unit);
  info.needs_reference = false;
  const auto score = [info, figure](const datasets::Prompt&, const std::vector<std::string>& texts,
                                    const ScoringContext&) {
    results::ScoreRecord record;
    record.evaluator = info.name;
    record.version = info.version;
    if (texts.empty()) {
      record.status = "no answer";
      return record;
    }
    const TextStyle style = text_style(texts.back());
    record.value = style.*figure;
    if (!record.value) record.status = "too short";
    record.facts = fmt::format(R"({{"words":{},"sentences":{}}})", style.words, style.sentences);
    return record;
  };
  return {info, score};
}

}  // namespace

TextStyle text_style(std::string_view text) {
  TextStyle style;
  const std::string lowered = lower(text);
  WordIds ids;
  const std::vector<StyledWord> words = words_of(lowered, ids);
  style.words = words.size();
  style.sentences = sentences_in(text);
  if (words.empty()) return style;
  style.type_token_ratio = moving_type_token_ratio(words, ids.size());
  style.sentence_words =
      static_cast<double>(style.words) / static_cast<double>(std::max<size_t>(1, style.sentences));
  if (words.size() >= kRepeatWords) {
    std::vector<WordId> plain;
    for (const StyledWord& w : words) plain.push_back(w.id);
    style.repeats = repeated_share(plain);
  }
  if (words.size() >= kTopicWords) find_topic(words, style);
  return style;
}

std::vector<EvaluatorEntry> style() {
  return {
      style_entry("type_token_ratio", "different words over words, in windows of 100 words",
                  "share, 0 to 1", &TextStyle::type_token_ratio),
      style_entry("repeats", "runs of four words that stood before in the answer", "share, 0 to 1",
                  &TextStyle::repeats),
      style_entry("sentence_words", "words per sentence", "words", &TextStyle::sentence_words),
      style_entry("kept_topic", "words of the last third that stand in the first third",
                  "share, 0 to 1", &TextStyle::kept_words),
      style_entry("kept_pairs", "pairs of words of the last third that stand in the first third",
                  "share, 0 to 1", &TextStyle::kept_pairs)};
}

}  // namespace evalrun::evaluators
