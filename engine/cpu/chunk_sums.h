// Attention's sums of single chunks, kept apart until a row has all of its own: where a unit of
// work is one chunk. Merged in the order of the chunks they are the bits of a running softmax.
#pragma once
#include <algorithm>
#include <cstddef>

#include "engine/base/aligned.h"
#include "engine/cpu/kernels/kernels.h"

namespace evalrun::engine::cpu {

class ChunkSums {
 public:
  static constexpr size_t kMaxWidth = 1024;  // values of a head

  // For a forward of `rows` rows of `heads` heads of `width` values, with up to `chunks` chunks.
  void make_room(int chunks, int rows, int heads, size_t width);

  // Of n neighbouring heads of a row in a chunk: maxima, denominators, weighted sums [n][width].
  void keep(int chunk, int row, int head, int n, const float* m, const float* l, const float* sums);
  // out [heads * head_dim] of a row from its first `chunks` chunks.
  void merge(const Kernels& kernels, int row, int chunks, int head_dim, float* out) const;

  size_t bytes() const { return (sums_.size() + m_.size() + l_.size()) * sizeof(float); }

 private:
  static constexpr size_t kMergedAtOnce = 4 * kMaxWidth;  // sums of heads in merge()
  size_t place(int chunk, int row, int head) const {
    return (static_cast<size_t>(chunk) * static_cast<size_t>(rows_) + static_cast<size_t>(row)) *
               static_cast<size_t>(heads_) +
           static_cast<size_t>(head);
  }

  int rows_ = 0, heads_ = 0;
  size_t width_ = 0;
  base::AlignedVector<float> sums_, m_, l_;  // [chunk][row][head]
};

}  // namespace evalrun::engine::cpu
