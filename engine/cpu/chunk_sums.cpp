#include "engine/cpu/chunk_sums.h"

#include "engine/cpu/kernels/arith.h"

namespace evalrun::engine::cpu {

void ChunkSums::make_room(int chunks, int rows, int heads, size_t width) {
  rows_ = rows, heads_ = heads, width_ = width;
  const size_t places = place(chunks, 0, 0);
  if (sums_.size() < places * width) sums_.resize(places * width);
  if (m_.size() < places) m_.resize(places), l_.resize(places);
}

void ChunkSums::keep(int chunk, int row, int head, int n, const float* m, const float* l,
                     const float* sums) {
  const size_t to = place(chunk, row, head);
  std::copy_n(m, n, m_.data() + to);
  std::copy_n(l, n, l_.data() + to);
  std::copy_n(sums, static_cast<size_t>(n) * width_, sums_.data() + to * width_);
}

void ChunkSums::merge(const Kernels& kernels, int row, int chunks, int head_dim, float* out) const {
  const size_t w = width_;
  const int at_once = std::min(kLanes, static_cast<int>(kMergedAtOnce / w));
  alignas(64) float sums[kMergedAtOnce];
  float m[kLanes], l[kLanes];
  for (int head = 0; head < heads_; head += at_once) {
    const int n = std::min(at_once, heads_ - head);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const size_t at = place(chunk, row, head);
      if (chunk == 0) {
        std::copy_n(m_.data() + at, n, m);
        std::copy_n(l_.data() + at, n, l);
        std::copy_n(sums_.data() + at * w, static_cast<size_t>(n) * w, sums);
      } else {
        kernels.merge(sums, m, l, sums_.data() + at * w, m_.data() + at, l_.data() + at, n,
                      static_cast<int>(w));
      }
    }
    for (int j = 0; j < n; ++j)
      for (int d = 0; d < head_dim; ++d)
        out[(head + j) * head_dim + d] =
            sums[static_cast<size_t>(j) * w + static_cast<size_t>(d)] / l[j];
  }
}

}  // namespace evalrun::engine::cpu
