// Which tokens most often follow one to four tokens in a large text: the corpus cache of Self-Draft
// ("Draft Cache Initialization" in Gao et al. 2025, AAAI-25). For every key of 1..max_key tokens
// the grams of `gram` tokens after it are counted. The `top` most frequent are kept, and of those
// the ones that occurred `min_count` times.
//
// Documents do not run into each other; a gram that its document cuts short does not count.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "methods/corpus/corpus_format.h"
#include "methods/corpus/corpus_text.h"

namespace evalrun::methods {

struct NgramOptions {
  int max_key = 4;    // 1..kMaxNgramKey: the longest key, in tokens
  int gram = 4;       // 1..kMaxGram: tokens of a gram
  int top = 20;       // grams kept per key, 1..kMaxNgramTop
  int min_count = 6;  // the published table keeps counts above 5
};
inline constexpr int kMaxNgramKey = 8, kMaxGram = 32, kMaxNgramTop = 100000;

class NgramCorpus {
 public:
  // Maps the file; throws data_error (methods/corpus/corpus_format.h). find() may throw one too
  // when it meets damaged bytes.
  explicit NgramCorpus(const std::string& path);

  const CorpusInfo& info() const { return file_.info(); }
  const CorpusFile& file() const { return file_; }
  int max_key() const { return static_cast<int>(tables_.size()); }
  int gram_length() const { return gram_; }
  NgramOptions options() const;
  struct Stats {
    int key_length;
    uint64_t keys, grams;
  };
  Stats stats(int key_length) const;  // 1..max_key()

  // The grams of one key, most frequent first, equally frequent ones in order of their ids. A view
  // into the file: copying it allocates nothing.
  class Grams {
   public:
    size_t size() const { return counts_.size(); }
    bool empty() const { return counts_.empty(); }
    std::span<const int32_t> operator[](size_t i) const { return tokens_.subspan(i * n_, n_); }
    uint32_t count(size_t i) const { return counts_[i]; }

   private:
    friend class NgramCorpus;
    std::span<const int32_t> tokens_;  // [size, gram_length]
    std::span<const uint32_t> counts_;
    size_t n_ = 0;
  };
  // Of exactly these tokens (1..max_key() of them); empty when they are no key.
  Grams find(std::span<const int32_t> key) const;

  // Longest key first: the grams of the last max_key() tokens of `text`, then of the last
  // max_key() - 1, ... of the last one, each by falling count, until `visit(gram)` says false.
  template <typename Visit>
  void visit_suffixes(std::span<const int32_t> text, const Visit& visit) const {
    for (size_t n = std::min(text.size(), tables_.size()); n > 0; --n) {
      const Grams grams = find(text.last(n));
      for (size_t i = 0; i < grams.size(); ++i)
        if (!visit(grams[i])) return;
    }
  }

 private:
  struct Table {                        // of one key length
    std::span<const int32_t> keys;      // [keys, key length], ascending
    std::span<const uint32_t> offsets;  // [keys + 1] into grams
    std::span<const int32_t> grams;     // [grams, gram_]
    std::span<const uint32_t> counts;   // [grams]
    uint64_t n_keys = 0;
  };
  CorpusFile file_;
  std::vector<Table> tables_;  // of keys of 1, 2, ... tokens
  int gram_ = 0;
};

// Counts and writes the file. Costs one sort of the suffixes (methods/corpus/corpus_text.h tells
// the memory) and one pass over them; the result takes at most a few words for every min_count
// tokens. Throws usage_error for options out of their ranges, data_error when the file cannot be
// written.
CorpusInfo build_ngram_corpus(const std::string& path, const CorpusText& text,
                              const NgramOptions& options);

}  // namespace evalrun::methods
