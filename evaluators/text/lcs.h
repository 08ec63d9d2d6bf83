// Longest common subsequences of word numbers, 64 table cells at a time: the bit-parallel
// recurrence of Crochemore, Iliopoulos, Pinzon and Reid (2001) as Hyyro (2004) writes it. Bit j of
// row i says that the LCS of i words of `a` with j + 1 words of `b` is no longer than with j words.
//
// Several longest subsequences may exist, and measures that ask which words are in it depend on the
// choice. walk() makes the choice of the recursive definition over the table T:
//   a[i-1] == b[j-1]:          take the pair, go to (i-1, j-1)
//   T[i-1][j] > T[i][j-1]:     go to (i-1, j)
//   otherwise:                 go to (i, j-1)
// Where the words differ, T[i-1][j] > T[i][j-1] exactly if T[i][j] > T[i][j-1], so the stored bits
// of row i decide. The other choice among equals is walk() with a and b exchanged.
//
// Memory, with m words in b and n in a: 8 m bytes at most for the places of the words, and rows of
// m / 8 bytes: all n where they fit into 256 KiB, else about 2 sqrt(n) of them (every sqrt(n)-th
// row is kept, the rows between two are computed again on the way back). No recursion.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "evaluators/text/words.h"

namespace evalrun::evaluators {

// What one pair costs, in steps of about a nanosecond (twice that for a walk).
size_t lcs_steps(size_t n_a, size_t n_b);

class Lcs {
 public:
  // Word numbers are below n_ids.
  explicit Lcs(size_t n_ids) : slot_of_(n_ids, kNone) {}

  // The second sequence, which must stay where it is for the calls of length() and walk().
  void set_b(std::span<const WordId> b);

  size_t length(std::span<const WordId> a);

  // Calls take(i, j) for each pair a[i] == b[j] of one LCS, last pair first.
  template <typename Take>
  void walk(std::span<const WordId> a, Take&& take) {
    size_t j = b_.size();
    if (a.empty() || j == 0) return;
    keep_checkpoints(a);
    for (size_t i = a.size(); i > 0 && j > 0;) {
      const size_t segment = (i - 1) / stride_, first = segment * stride_;
      compute_segment(a, segment);
      while (i > first && j > 0) {
        const uint64_t* row = rows_.data() + (i - first - 1) * n_blocks_;
        if (a[i - 1] == b_[j - 1]) {
          take(--i, --j);
        } else if (((row[(j - 1) / 64] >> ((j - 1) % 64)) & 1) == 0) {
          --i;
        } else {
          --j;
        }
      }
    }
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // Where a word of b stands: in a mask of its own, or as a list of places. A mask is as large as a
  // list of n_blocks_ places and used from there on, so that there are 64 at most.
  struct Slot {
    uint32_t begin = 0, end = 0;  // in places_
    size_t mask = 0;              // offset in masks_, kNoMask for a list
    WordId word = 0;
  };
  static constexpr size_t kNoMask = ~size_t{0};

  // after = the row below `before`, for one word of a; may be the same row.
  void next_row(const uint64_t* before, WordId word, uint64_t* after);
  void keep_checkpoints(std::span<const WordId> a);
  void compute_segment(std::span<const WordId> a, size_t segment);

  std::vector<uint32_t> slot_of_;  // [n_ids]
  std::span<const WordId> b_;
  size_t n_blocks_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> places_;
  std::vector<uint64_t> masks_, scratch_;  // scratch_: a mask made from a list, zero between uses
  size_t stride_ = 0;                      // rows from one checkpoint to the next
  std::vector<uint64_t> checkpoints_, rows_;
};

}  // namespace evalrun::evaluators
