#include "evaluators/text/porter.h"

#include <array>
#include <span>
#include <utility>

namespace evalrun::evaluators {

namespace {

// Letters before the end of a word, as the paper's conditions see them.
bool is_vowel_letter(char c) { return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u'; }

// A y is a consonant at the start and after a vowel. Only the run of y's before `at` decides.
bool is_consonant(std::string_view word, size_t at) {
  bool flipped = false;
  while (at > 0 && word[at] == 'y') {
    flipped = !flipped;
    --at;
  }
  return is_vowel_letter(word[at]) == flipped;
}

// Number of changes from vowel to consonant, the paper's m, and whether there is a vowel at all.
// One pass: asking is_consonant() of every letter would take quadratic time on a run of y's.
struct Shape {
  int m = 0;
  bool has_vowel = false;
};
Shape shape_of(std::string_view stem) {
  Shape shape;
  bool previous = true;  // as if a consonant stood in front
  for (size_t i = 0; i < stem.size(); ++i) {
    const bool consonant = stem[i] == 'y' ? (i == 0 || !previous) : !is_vowel_letter(stem[i]);
    shape.m += consonant && !previous ? 1 : 0;
    shape.has_vowel |= !consonant;
    previous = consonant;
  }
  return shape;
}
int measure(std::string_view stem) { return shape_of(stem).m; }
bool contains_vowel(std::string_view stem) { return shape_of(stem).has_vowel; }

bool ends_double_consonant(std::string_view word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && is_consonant(word, n - 1);
}

// Consonant, vowel, consonant other than w, x, y at the end; NLTK adds vowel, consonant alone.
bool ends_cvc(std::string_view word) {
  const size_t n = word.size();
  if (n == 2) return !is_consonant(word, 0) && is_consonant(word, 1);
  if (n < 3) return false;
  const char last = word[n - 1];
  return is_consonant(word, n - 3) && !is_consonant(word, n - 2) && is_consonant(word, n - 1) &&
         last != 'w' && last != 'x' && last != 'y';
}

struct Rule {
  std::string_view suffix, replacement;
};

std::string joined(std::string_view stem, std::string_view end) {
  std::string word(stem);
  word += end;
  return word;
}

// The first rule whose suffix the word has decides. It is applied where the measure of what comes
// before the suffix is above `above`, else the word stays.
std::string apply(std::string word, std::span<const Rule> rules, int above) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const std::string_view stem(word.data(), word.size() - rule.suffix.size());
    if (measure(stem) > above) return joined(stem, rule.replacement);
    return word;
  }
  return word;
}

std::string plurals(std::string word) {  // step 1a
  const auto cut = [&](size_t n) { return word.substr(0, word.size() - n); };
  if (word.ends_with("ies")) return cut(word.size() == 4 ? 1 : 2);
  if (word.ends_with("sses")) return cut(2);
  if (word.ends_with("ss") || !word.ends_with('s')) return word;
  return cut(1);
}

std::string past_and_participle(std::string word) {  // step 1b
  const auto cut = [&](size_t n) { return word.substr(0, word.size() - n); };
  if (word.ends_with("ied")) return cut(word.size() == 4 ? 1 : 2);
  if (word.ends_with("eed")) return measure(cut(3)) > 0 ? cut(1) : word;
  std::string stem;
  if (word.ends_with("ed") && contains_vowel(cut(2)))
    stem = cut(2);
  else if (word.ends_with("ing") && contains_vowel(cut(3)))
    stem = cut(3);
  else
    return word;
  if (stem.ends_with("at") || stem.ends_with("bl") || stem.ends_with("iz")) return stem + "e";
  if (ends_double_consonant(stem)) {
    const char last = stem.back();
    if (last != 'l' && last != 's' && last != 'z') stem.pop_back();
    return stem;
  }
  return measure(stem) == 1 && ends_cvc(stem) ? stem + "e" : stem;
}

std::string final_y(std::string word) {  // step 1c
  const size_t n = word.size();
  if (n > 2 && word.back() == 'y' && is_consonant(word, n - 2)) word.back() = 'i';
  return word;
}

std::string double_suffixes(std::string word) {  // step 2
  static constexpr std::array<Rule, 20> kRules{
      {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
       {"izer", "ize"},    {"bli", "ble"},     {"entli", "ent"},   {"eli", "e"},
       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},
       {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"},
       {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},  {"fulli", "ful"}}};
  if (word.ends_with("alli")) {
    if (measure(std::string_view(word).substr(0, word.size() - 4)) == 0) return word;
    word.resize(word.size() - 2);  // "al", which other rules may end in
  }
  // The l of "logi" counts as part of the stem.
  if (word.ends_with("logi")) {
    if (measure(std::string_view(word).substr(0, word.size() - 3)) > 0) word.pop_back();
    return word;
  }
  return apply(std::move(word), kRules, 0);
}

std::string adjectives(std::string word) {  // step 3
  static constexpr std::array<Rule, 7> kRules{{{"icate", "ic"},
                                               {"ative", ""},
                                               {"alize", "al"},
                                               {"iciti", "ic"},
                                               {"ical", "ic"},
                                               {"ful", ""},
                                               {"ness", ""}}};
  return apply(std::move(word), kRules, 0);
}

std::string single_suffixes(std::string word) {  // step 4
  static constexpr std::array<Rule, 18> kRules{{{"al", ""},
                                                {"ance", ""},
                                                {"ence", ""},
                                                {"er", ""},
                                                {"ic", ""},
                                                {"able", ""},
                                                {"ible", ""},
                                                {"ant", ""},
                                                {"ement", ""},
                                                {"ment", ""},
                                                {"ent", ""},
                                                {"ou", ""},
                                                {"ism", ""},
                                                {"ate", ""},
                                                {"iti", ""},
                                                {"ous", ""},
                                                {"ive", ""},
                                                {"ize", ""}}};
  if (word.ends_with("ion")) {
    const std::string_view stem = std::string_view(word).substr(0, word.size() - 3);
    if (measure(stem) > 1 && (stem.back() == 's' || stem.back() == 't'))
      word.resize(word.size() - 3);
    return word;
  }
  return apply(std::move(word), kRules, 1);
}

std::string final_e_and_l(std::string word) {  // step 5
  if (word.ends_with('e')) {
    const std::string_view stem = std::string_view(word).substr(0, word.size() - 1);
    const int m = measure(stem);
    if (m > 1 || (m == 1 && !ends_cvc(stem))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(std::string_view(word).substr(0, word.size() - 1)) > 1)
    word.pop_back();
  return word;
}

// Words NLTK lists as exceptions.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kIrregular{
    {{"sky", "sky"},
     {"skies", "sky"},
     {"dying", "die"},
     {"lying", "lie"},
     {"tying", "tie"},
     {"news", "news"},
     {"innings", "inning"},
     {"inning", "inning"},
     {"outings", "outing"},
     {"outing", "outing"},
     {"cannings", "canning"},
     {"canning", "canning"},
     {"howe", "howe"},
     {"proceed", "proceed"},
     {"exceed", "exceed"},
     {"succeed", "succeed"}}};

}  // namespace

std::string porter_stem(std::string_view text) {
  for (const auto& [word, stem] : kIrregular)
    if (word == text) return std::string(stem);
  std::string word(text);
  if (word.size() <= 2) return word;
  word = past_and_participle(plurals(std::move(word)));
  word = adjectives(double_suffixes(final_y(std::move(word))));
  return final_e_and_l(single_suffixes(std::move(word)));
}

}  // namespace evalrun::evaluators
