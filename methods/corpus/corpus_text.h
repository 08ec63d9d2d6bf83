// The text a corpus is counted over: token ids of documents, packed, and its suffixes in order.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "methods/corpus/corpus_format.h"

namespace evalrun::methods {

// Ids as big-endian bytes of fixed width, so that comparing bytes compares ids: 2 bytes when ids
// and the separator fit (vocabularies below 65,536), else 3. Every document ends with the
// separator, an id one above the vocabulary, which no query can hold: matches and continuations
// never run from one document into the next.
struct PackedTokens {
  const uint8_t* bytes = nullptr;
  uint64_t length = 0;  // in tokens, separators included
  int width = 2;
  int32_t operator[](uint64_t i) const {  // i < length
    const uint8_t* b = bytes + i * static_cast<uint64_t>(width);
    return width == 2 ? b[0] << 8 | b[1] : b[0] << 16 | b[1] << 8 | b[2];
  }
};
int packed_width(int vocabulary_size);

class CorpusText {
 public:
  explicit CorpusText(Vocabulary vocabulary);  // 1..kMaxVocabulary ids
  // Documents without tokens are left out. Ids must lie in the vocabulary.
  void add_document(std::span<const int32_t> tokens);
  void add_file() { ++source_.files; }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const CorpusSource& source() const { return source_; }
  int32_t separator() const { return vocabulary_.size; }
  PackedTokens packed() const;
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  Vocabulary vocabulary_;
  int width_;
  CorpusSource source_;
  std::vector<uint8_t> bytes_;
};

// Places of the suffixes of a text in lexicographic order of ids, those that begin with a separator
// left out: as many as the text has tokens. One of the two vectors is empty.
struct SortedSuffixes {
  std::vector<uint32_t> narrow;
  std::vector<uint64_t> wide;  // when a place does not fit 32 bits
  uint64_t size() const { return narrow.size() + wide.size(); }
  uint64_t operator[](uint64_t i) const { return wide.empty() ? narrow[i] : wide[i]; }
};

// Sorted by libdivsufsort over the bytes; places within a token are dropped. Memory besides the
// text: 12 bytes a token (16 with 3-byte ids; from 2^31 bytes of text on 20 and 28). `wide` takes
// the 64-bit library and places whatever the size; for tests.
SortedSuffixes sort_suffixes(const CorpusText& text, bool wide = false);

}  // namespace evalrun::methods
