#include "engine/cache_blocks.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::engine {

void CacheBlocks::reserve(int max_tokens) {
  for (std::vector<int32_t>& blocks : of_)
    blocks.reserve(static_cast<size_t>(std::min(blocks_of(max_tokens), n_blocks_)));
  free_.reserve(static_cast<size_t>(n_blocks_));
}

int64_t CacheBlocks::lacking(std::span<const SequenceLength> wanted) const {
  int64_t sum = 0;
  for (const SequenceLength& w : wanted)
    sum += std::max<int64_t>(
        0, blocks_of(w.length) - static_cast<int64_t>(of_[static_cast<size_t>(w.sequence)].size()));
  return sum;
}

void CacheBlocks::take(std::span<const SequenceLength> wanted) {
  EVALRUN_CHECK(lacking(wanted) <= n_free(), "{} blocks of a cache, {} are free", lacking(wanted),
                n_free());
  for (const SequenceLength& w : wanted) {
    std::vector<int32_t>& blocks = of_[static_cast<size_t>(w.sequence)];
    while (static_cast<int64_t>(blocks.size()) < blocks_of(w.length)) {
      if (free_.empty()) {
        blocks.push_back(static_cast<int32_t>(next_++));
      } else {
        blocks.push_back(free_.back());
        free_.pop_back();
      }
    }
  }
}

void CacheBlocks::give_back(int sequence, int length) {
  std::vector<int32_t>& blocks = of_[static_cast<size_t>(sequence)];
  while (static_cast<int64_t>(blocks.size()) > blocks_of(length)) {
    free_.push_back(blocks.back());
    blocks.pop_back();
  }
}

}  // namespace evalrun::engine
