#include "evaluators/text/words.h"

#include <bit>
#include <cstring>

namespace evalrun::evaluators {

namespace {

// Multiplication by 2^64 over the golden ratio spreads keys that are small numbers side by side;
// the high half of the product is the good one.
uint64_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ (key >> 32);
}

uint64_t load(const char* bytes, size_t n) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, n);
  return value;
}

// Eight bytes at a time; most words are one step. Loads overlap where the length is no multiple.
uint64_t hash_of(std::string_view word) {
  const size_t n = word.size();
  uint64_t hash = n;
  if (n >= 8) {
    for (size_t at = 0; at + 8 < n; at += 8) hash = mix(hash ^ load(word.data() + at, 8));
    return mix(hash ^ load(word.data() + n - 8, 8));
  }
  if (n >= 4) return mix(hash ^ (load(word.data(), 4) << 32) ^ (load(word.data() + n - 4, 4) << 3));
  for (const char c : word) hash = hash << 8 | static_cast<unsigned char>(c);
  return mix(hash);
}

}  // namespace

size_t white_space_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = byte(at);
  if (first < 0x80)
    return first == ' ' || (first >= 0x09 && first <= 0x0d) || (first >= 0x1c && first <= 0x1f);
  if (first == 0xc2) return byte(at + 1) == 0x85 || byte(at + 1) == 0xa0 ? 2 : 0;
  if (first < 0xe1 || first > 0xe3) return 0;
  const unsigned second = byte(at + 1), third = byte(at + 2);
  if (first == 0xe1) return second == 0x9a && third == 0x80 ? 3 : 0;  // U+1680
  if (first == 0xe3) return second == 0x80 && third == 0x80 ? 3 : 0;  // U+3000
  // U+2000 to U+200A, U+2028, U+2029, U+202F; U+205F.
  const bool general = second == 0x80 && ((third >= 0x80 && third <= 0x8a) || third == 0xa8 ||
                                          third == 0xa9 || third == 0xaf);
  return general || (second == 0x81 && third == 0x9f) ? 3 : 0;
}

WordId WordIds::id(std::string_view word) {
  const uint64_t hash = hash_of(word);
  const size_t last = slots_.size() - 1;
  for (size_t at = hash & last;; at = (at + 1) & last) {
    if (slots_[at] == 0) {
      words_.push_back({word, hash});
      slots_[at] = static_cast<uint32_t>(words_.size());
      if (words_.size() * 2 > slots_.size()) grow();
      return static_cast<WordId>(words_.size() - 1);
    }
    const Word& known = words_[slots_[at] - 1];
    if (known.hash == hash && known.text == word) return slots_[at] - 1;
  }
}

void WordIds::grow() {
  slots_.assign(slots_.size() * 4, 0);
  for (size_t i = 0; i < words_.size(); ++i) {
    size_t at = words_[i].hash & (slots_.size() - 1);
    while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = static_cast<uint32_t>(i + 1);
  }
}

NgramIds::NgramIds(size_t expected) : slots_(std::bit_ceil(2 * expected + 2), 0) {
  keys_.reserve(expected);
}

size_t NgramIds::slot_of(uint64_t key) const {
  const size_t last = slots_.size() - 1;
  size_t at = mix(key) & last;
  while (slots_[at] != 0 && keys_[slots_[at] - 1] != key) at = (at + 1) & last;
  return at;
}

uint32_t NgramIds::id(uint32_t prefix, WordId last) {
  const uint64_t key = (uint64_t{prefix} << 32) | last;
  uint32_t& slot = slots_[slot_of(key)];
  if (slot != 0) return slot - 1;
  keys_.push_back(key);
  slot = static_cast<uint32_t>(keys_.size());
  if (keys_.size() * 2 > slots_.size()) grow();
  return static_cast<uint32_t>(keys_.size() - 1);
}

uint32_t NgramIds::find(uint32_t prefix, WordId last) const {
  const uint32_t slot = slots_[slot_of((uint64_t{prefix} << 32) | last)];
  return slot == 0 ? kUnknown : slot - 1;
}

void NgramIds::grow() {
  slots_.assign(slots_.size() * 4, 0);
  for (size_t i = 0; i < keys_.size(); ++i)
    slots_[slot_of(keys_[i])] = static_cast<uint32_t>(i + 1);
}

void extend_ngrams(std::vector<uint32_t>& grams, std::span<const WordId> words, size_t n,
                   NgramIds& ids) {
  if (grams.empty()) return;
  grams.pop_back();
  for (size_t i = 0; i < grams.size(); ++i) grams[i] = ids.id(grams[i], words[i + n - 1]);
}

void extend_known_ngrams(std::vector<uint32_t>& grams, std::span<const WordId> words, size_t n,
                         const NgramIds& ids) {
  if (grams.empty()) return;
  grams.pop_back();
  for (size_t i = 0; i < grams.size(); ++i)
    if (grams[i] != NgramIds::kUnknown) grams[i] = ids.find(grams[i], words[i + n - 1]);
}

size_t clipped_matches(std::span<const uint32_t> a, std::span<const uint32_t> b, size_t n_ids) {
  std::vector<uint32_t> left(n_ids, 0);
  for (const uint32_t gram : a) ++left[gram];
  size_t matches = 0;
  for (const uint32_t gram : b)
    if (gram != NgramIds::kUnknown && left[gram] > 0) {
      --left[gram];
      ++matches;
    }
  return matches;
}

SetSizes set_sizes(std::span<const uint32_t> a, std::span<const uint32_t> b, size_t n_ids) {
  std::vector<uint8_t> seen(n_ids, 0);  // bit 0: in a, bit 1: in b
  for (const uint32_t gram : a) seen[gram] |= 1;
  for (const uint32_t gram : b) seen[gram] |= 2;
  SetSizes sizes;
  for (const uint8_t in : seen) {
    sizes.a += in & 1;
    sizes.b += in >> 1;
    sizes.common += in == 3 ? 1 : 0;
  }
  return sizes;
}

}  // namespace evalrun::evaluators
