// Text to word numbers, for the measures that compare texts word by word. Texts are bytes; what is
// not UTF-8 is kept as it stands and is no white space.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace evalrun::evaluators {

// Equal words of one WordIds have equal numbers, counted from 0.
using WordId = uint32_t;

// Bytes of the white space character at text[at], 0 when there is none. White space as Python's
// str.split() has it: Unicode's, and the separators 0x1c to 0x1f.
size_t white_space_at(std::string_view text, size_t at);

// Bytes that stand for themselves in a word: what is neither white space in ASCII nor the first
// byte of white space outside it.
inline constexpr std::array<bool, 256> kPlainByte = [] {
  std::array<bool, 256> plain{};
  for (size_t c = 0; c < 256; ++c)
    plain[c] = c != ' ' && !(c >= 0x09 && c <= 0x0d) && !(c >= 0x1c && c <= 0x1f) && c != 0xc2 &&
               !(c >= 0xe1 && c <= 0xe3);
  return plain;
}();

// Calls visit(std::string_view word) for each run without white space.
template <typename Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t n =
        kPlainByte[static_cast<unsigned char>(text[at])] ? 0 : white_space_at(text, at);
    if (n == 0) {
      ++at;
      continue;
    }
    if (at > begin) visit(text.substr(begin, at - begin));
    begin = at += n;
  }
  if (text.size() > begin) visit(text.substr(begin));
}

// Keeps views: the text must outlive it. An open-addressing table, because allocations of a node
// per word were most of the time of scoring a sentence.
class WordIds {
 public:
  WordIds() : slots_(kFirstSlots, 0) { words_.reserve(kFirstSlots / 2 + 1); }
  WordId id(std::string_view word);
  // Numbers given so far.
  size_t size() const { return words_.size(); }

 private:
  static constexpr size_t kFirstSlots = 256;
  struct Word {
    std::string_view text;
    uint64_t hash;
  };
  void grow();
  std::vector<uint32_t> slots_;  // number + 1, 0 = free; a power of two, at most half full
  std::vector<Word> words_;
};

// N-grams of two texts by number, exactly: the number of an n-gram stands for the pair of its first
// n - 1 words (their number among (n - 1)-grams) and its last word. Linear in the number of words.
class NgramIds {
 public:
  static constexpr uint32_t kUnknown = ~uint32_t{0};
  // Room for `expected` different n-grams; more are fine.
  explicit NgramIds(size_t expected);
  uint32_t id(uint32_t prefix, WordId last);
  // kUnknown when id() was never called with it.
  uint32_t find(uint32_t prefix, WordId last) const;
  size_t size() const { return keys_.size(); }

 private:
  size_t slot_of(uint64_t key) const;  // where it is, or the free slot where it belongs
  void grow();
  std::vector<uint32_t> slots_;  // number + 1, 0 = free; a power of two, at most half full
  std::vector<uint64_t> keys_;
};

// Replaces the numbers of (n - 1)-grams by those of n-grams: grams[i] becomes that of the words i
// to i + n - 1. One shorter afterwards; empty stays empty.
void extend_ngrams(std::vector<uint32_t>& grams, std::span<const WordId> words, size_t n,
                   NgramIds& ids);
// The same without new numbers: what `ids` does not have becomes kUnknown and stays it.
void extend_known_ngrams(std::vector<uint32_t>& grams, std::span<const WordId> words, size_t n,
                         const NgramIds& ids);

// N-grams in both texts, each counted as often as in the text that has it less often. `b` may hold
// kUnknown, which `a` has nowhere.
size_t clipped_matches(std::span<const uint32_t> a, std::span<const uint32_t> b, size_t n_ids);
// The same with every n-gram counted once, and how many different ones each text has.
struct SetSizes {
  size_t a = 0, b = 0, common = 0;
};
SetSizes set_sizes(std::span<const uint32_t> a, std::span<const uint32_t> b, size_t n_ids);

}  // namespace evalrun::evaluators
