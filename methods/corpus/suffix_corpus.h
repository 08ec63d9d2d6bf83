// A text of token ids and its suffix array on disk: every occurrence of any phrase, by binary
// search. The datastore of REST (He et al. 2023, arXiv 2311.08252, section 3.1).
//
// Differs from the released program: documents end with a separator (methods/corpus/corpus_text.h),
// so that no match and no continuation runs from one into the next; one array over the whole text
// instead of chunks; ids of any width instead of 16 bits.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "methods/corpus/corpus_format.h"
#include "methods/corpus/corpus_text.h"

namespace evalrun::methods {

class SuffixCorpus {
 public:
  // Maps the file; throws data_error (methods/corpus/corpus_format.h). Everything below may throw
  // one too when it meets damaged bytes.
  explicit SuffixCorpus(const std::string& path);

  const CorpusInfo& info() const { return file_.info(); }
  const CorpusFile& file() const { return file_; }
  uint64_t size() const { return size_; }  // suffixes = tokens

  // Suffixes begin..end-1 in order of their ids.
  struct Range {
    uint64_t begin = 0, end = 0;
    uint64_t size() const { return end - begin; }
    bool empty() const { return begin == end; }
    bool operator==(const Range&) const = default;
  };
  // The suffixes that begin with `pattern`; all of them for an empty one.
  Range find(std::span<const int32_t> pattern) const;

  // Token `depth` places after the start of a suffix (index < size()); -1 from the end of its
  // document on.
  int32_t token_at(uint64_t index, uint64_t depth) const {
    return token_behind(place(index), depth);
  }
  // The same in two steps, for readers of several tokens: the place of a suffix in the text, and a
  // token after it. -1 is said at the end of the document; what lies beyond belongs to another one.
  uint64_t place(uint64_t index) const;
  int32_t token_behind(uint64_t place, uint64_t depth) const;
  void prefetch(uint64_t place) const {  // the text at a place is read soon
    __builtin_prefetch(text_.bytes + place * static_cast<uint64_t>(text_.width));
  }

 private:
  uint32_t id_behind(uint64_t place, uint64_t depth) const;
  int compare(uint64_t index, std::span<const int32_t> pattern) const;

  CorpusFile file_;
  PackedTokens text_;
  std::span<const uint32_t> narrow_;  // places; one of the two is empty
  std::span<const uint64_t> wide_;
  uint64_t size_ = 0;
};

// Sorts the suffixes of `text` (methods/corpus/corpus_text.h tells the memory) and writes the file.
// Throws data_error when it cannot be written. `wide`: 64-bit places whatever the size, for tests.
CorpusInfo build_suffix_corpus(const std::string& path, const CorpusText& text, bool wide = false);

}  // namespace evalrun::methods
