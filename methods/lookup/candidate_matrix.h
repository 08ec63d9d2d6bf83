// For each token of the vocabulary the tokens that the target last found likeliest after it: the
// adjacency matrix of Token Recycling (methods/lookup/recycling.cpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "methods/target_answers.h"

namespace evalrun::methods {

class CandidateMatrix {
 public:
  // `vocab` rows of `k` places.
  CandidateMatrix(int vocab, int k)
      : k_(static_cast<size_t>(k)), next_(static_cast<size_t>(vocab) * k_, -1) {
    EVALRUN_CHECK(vocab >= 1 && k >= 1, "{} rows of {}", vocab, k);
  }

  static double bytes(int vocab, int k) { return 1.0 * sizeof(int32_t) * vocab * k; }

  void clear() { std::fill(next_.begin(), next_.end(), -1); }
  // The whole row anew: the first k of `best`, the likeliest first; places without one are empty.
  void set(int32_t token, std::span<const engine::TokenLogit> best) {
    const std::span<int32_t> row = row_of(token);
    for (size_t i = 0; i < k_; ++i) row[i] = i < best.size() ? best[i].token : -1;
  }
  // Before the others of the row, which keep their order; the last goes where the row is full.
  void put_first(int32_t token, int32_t next) {
    const std::span<int32_t> row = row_of(token);
    const auto found = std::find(row.begin(), row.end(), next);
    const auto gap = found == row.end() ? row.end() - 1 : found;
    std::rotate(row.begin(), gap, gap + 1);
    row[0] = next;
  }
  // -1 = nothing there.
  int32_t at(int32_t token, int rank) const {
    const auto place = static_cast<size_t>(rank);
    return place < k_ ? next_[static_cast<size_t>(token) * k_ + place] : -1;
  }

 private:
  std::span<int32_t> row_of(int32_t token) {
    return std::span<int32_t>(next_).subspan(static_cast<size_t>(token) * k_, k_);
  }

  size_t k_;
  std::vector<int32_t> next_;  // [vocab, k], -1 = empty
};

}  // namespace evalrun::methods
