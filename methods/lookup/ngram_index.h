// Where an n-gram stood before: for every n in [min_n, max_n] an open-addressing hash table from
// the n-gram to its first or its latest occurrence, extended as the sequence grows. With the latest
// the earlier ones can be walked through.
//
// A scan of the whole sequence per step costs O(length * max_n) and grows into a visible share of a
// step of a small model at long contexts; a look-up here costs O(max_n^2) whatever the length.
// Tests hold it against the plain scan. Nothing is allocated after start() for sequences up to the
// promised length.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace evalrun::methods {

class NgramIndex {
 public:
  enum class Match { kFirst, kRecent };
  NgramIndex(int min_n, int max_n, Match match);  // 1 <= min_n <= max_n

  // For each token that start() promised. A table of slots is at least a quarter full then.
  static double bytes_per_token(int min_n, int max_n, Match match) {
    return (max_n - min_n + 1) * (4.0 + (match == Match::kRecent ? 1 : 0)) * sizeof(int32_t);
  }

  // Forgets everything and makes room for sequences of up to `max_length` tokens.
  void start(int max_length);

  // Longest n first: an occurrence of the last n tokens that has a token after it. Returns the
  // position after the occurrence, -1 when there is none. `sequence` must extend that of the call
  // before. The end of the sequence does not match itself, since nothing comes after it.
  int find(std::span<const int32_t> sequence);
  int matched() const { return matched_; }  // n of the last find(), 0 = none
  // The same for `sequence` with `tail` behind it, which is not taken in: a guess of what comes
  // next. `sequence` as in the last find().
  int find_with(std::span<const int32_t> sequence, std::span<const int32_t> tail);
  int find_with(std::span<const int32_t> sequence, int32_t token) {
    return find_with(sequence, std::span<const int32_t>(&token, 1));
  }
  // kRecent, for the n-gram that the last find() matched: the position after the occurrence before
  // the one that ends at `position`; -1 when there is none.
  int earlier(int position) const;

 private:
  struct Table {
    int n = 0;
    int indexed = 0;  // starts 0..indexed-1 are in
    std::vector<int32_t>
        start;  // slot -> start of an occurrence, -1 = free; size is a power of two
    std::vector<int32_t> previous;  // start -> start of the occurrence before, -1; kRecent only
  };
  // Slot that holds this n-gram, or the free slot where it belongs.
  static size_t slot_of(const Table& table, std::span<const int32_t> sequence,
                        std::span<const int32_t> key);
  static size_t slot_at(const Table& table, std::span<const int32_t> sequence, int at) {
    return slot_of(table, sequence,
                   sequence.subspan(static_cast<size_t>(at), static_cast<size_t>(table.n)));
  }

  Match match_;
  int max_length_ = 0;
  int matched_ = 0;
  std::vector<Table> tables_;  // longest n first
  std::vector<int32_t> key_;   // of find_with()
};

}  // namespace evalrun::methods
