// A table of fixed size from n tokens to the one that followed them last. Only hashes are kept:
// other tokens with the same hash overwrite an entry, and find it. The table of llama.cpp's
// ngram-mod (common/ngram-mod.h, github.com/ggml-org/llama.cpp/pull/19164).
//
// Nothing is allocated by add() for as many grams as reserve() promised.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::methods {

class NextTokenTable {
 public:
  // `entries`: 1 or more, of 4 bytes, and 4 more for each that is used.
  explicit NextTokenTable(size_t entries) : next_(entries, -1) { EVALRUN_CHECK(entries > 0); }

  static double most_bytes(size_t entries) {
    return static_cast<double>(entries) * (sizeof(int32_t) + sizeof(uint32_t));
  }

  // Costs as much as entries are used.
  void clear() {
    for (const uint32_t entry : used_) next_[entry] = -1;
    used_.clear();
  }
  void reserve(size_t grams) { used_.reserve(std::min(used_.size() + grams, next_.size())); }
  void add(std::span<const int32_t> gram, int32_t token) {
    const size_t entry = entry_of(gram);
    if (next_[entry] < 0) used_.push_back(static_cast<uint32_t>(entry));
    next_[entry] = token;
  }
  int32_t find(std::span<const int32_t> gram) const { return next_[entry_of(gram)]; }  // -1 = none
  size_t used() const { return used_.size(); }
  size_t entries() const { return next_.size(); }
  // As the released program hashes, so that the same grams collide.
  size_t entry_of(std::span<const int32_t> gram) const {
    uint64_t hash = 0;
    for (const int32_t token : gram)
      hash = hash * 6364136223846793005u + static_cast<uint64_t>(static_cast<uint32_t>(token));
    return static_cast<size_t>(hash % next_.size());
  }

 private:
  std::vector<int32_t> next_;
  std::vector<uint32_t> used_;  // entries
};

}  // namespace evalrun::methods
