// Which blocks of positions each sequence has of a session's caches. Keys and values of all
// sequences lie in one pool. A sequence takes a block when its tokens reach into it, and gives it
// back when they are forgotten: sequences of unequal length share what they need, and reserve
// nothing. Book-keeping alone; a backend has the memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace evalrun::engine {

// Positions of a block: a chunk of attention, so that a chunk of a sequence lies in one block.
inline constexpr int kCacheBlock = 128;

// Blocks for positions [0, length).
constexpr int64_t blocks_of(int64_t length) { return (length + kCacheBlock - 1) / kCacheBlock; }

struct SequenceLength {
  int sequence = 0;
  int length = 0;  // positions
};

class CacheBlocks {
 public:
  CacheBlocks(int64_t n_blocks, int n_sequences)
      : n_blocks_(n_blocks), of_(static_cast<size_t>(n_sequences)) {}
  // Room for every list of sequences up to `max_tokens` long: nothing is allocated afterwards.
  void reserve(int max_tokens);

  // How many blocks these sequences lack, each named once, to be so long.
  int64_t lacking(std::span<const SequenceLength> wanted) const;
  // Gives them what they lack; more must not be asked for than is free.
  void take(std::span<const SequenceLength> wanted);
  // Takes back the blocks that the first `length` positions do not reach into.
  void give_back(int sequence, int length);

  int64_t n_blocks() const { return n_blocks_; }
  int64_t n_free() const { return n_blocks_ - next_ + static_cast<int64_t>(free_.size()); }
  // Block of each chunk of a sequence.
  std::span<const int32_t> of(int sequence) const { return of_[static_cast<size_t>(sequence)]; }
  // Where in the pool a position lies.
  int place(int sequence, int position) const {
    return of(sequence)[static_cast<size_t>(position / kCacheBlock)] * kCacheBlock +
           position % kCacheBlock;
  }

 private:
  int64_t n_blocks_;
  int64_t next_ = 0;           // from this one on, none was ever taken
  std::vector<int32_t> free_;  // given back; the last one is taken first. One sequence alone so
                               // always has blocks 0, 1, 2, ...
  std::vector<std::vector<int32_t>> of_;  // [sequence][chunk]
};

}  // namespace evalrun::engine
