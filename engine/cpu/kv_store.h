// Key/value storage of the vector path, laid out for its kernels.
//   K: blocks of 16 positions, [kv head][position / 16][head_dim][16]: a block is one score kernel
//   call. V: rows, [kv head][position][padded head_dim].
// One store holds one layer of one sequence (or the scratch rows of a forward, position = row).
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "engine/base/aligned.h"
#include "engine/cpu/arith.h"

namespace evalrun::engine::cpu {

class KvStore {
 public:
  void configure(int n_kv_heads, int head_dim) {
    heads_ = static_cast<size_t>(n_kv_heads);
    hd_ = static_cast<size_t>(head_dim);
    padded_ = (hd_ + kLanes - 1) / kLanes * kLanes;
  }
  // Room for `positions`; contents are kept only when the capacity does not change.
  void reserve(int positions) {
    const size_t n = (static_cast<size_t>(positions) + kLanes - 1) / kLanes * kLanes;
    if (n <= capacity_) return;
    capacity_ = n;
    k_.assign(heads_ * n * hd_, 0.0f);
    v_.assign(heads_ * n * padded_, 0.0f);
  }
  const float* k_blocks(int head, int first_block) const {
    return k_.data() +
           (static_cast<size_t>(head) * capacity_ + static_cast<size_t>(first_block) * kLanes) *
               hd_;
  }
  const float* v_row(int head, int position) const {
    return v_.data() +
           (static_cast<size_t>(head) * capacity_ + static_cast<size_t>(position)) * padded_;
  }
  int v_stride() const { return static_cast<int>(padded_); }

  // k, v: [n_kv_heads * head_dim] of one position.
  void write(int position, const float* k, const float* v) {
    for (size_t h = 0; h < heads_; ++h) {
      float* kb = k_lane(h, static_cast<size_t>(position));
      float* vr = v_.data() + (h * capacity_ + static_cast<size_t>(position)) * padded_;
      for (size_t d = 0; d < hd_; ++d) kb[d * kLanes] = k[h * hd_ + d], vr[d] = v[h * hd_ + d];
    }
  }
  void read(int position, float* k, float* v) const {
    auto* self = const_cast<KvStore*>(this);
    for (size_t h = 0; h < heads_; ++h) {
      const float* kb = self->k_lane(h, static_cast<size_t>(position));
      const float* vr = v_row(static_cast<int>(h), position);
      for (size_t d = 0; d < hd_; ++d) k[h * hd_ + d] = kb[d * kLanes], v[h * hd_ + d] = vr[d];
    }
  }
  void copy_position(const KvStore& from, int source, int position) {
    auto& other = const_cast<KvStore&>(from);
    for (size_t h = 0; h < heads_; ++h) {
      const float* kb = other.k_lane(h, static_cast<size_t>(source));
      float* to = k_lane(h, static_cast<size_t>(position));
      for (size_t d = 0; d < hd_; ++d) to[d * kLanes] = kb[d * kLanes];
      const float* vr = from.v_row(static_cast<int>(h), source);
      std::copy(vr, vr + hd_,
                v_.data() + (h * capacity_ + static_cast<size_t>(position)) * padded_);
    }
  }
  void copy_from(const KvStore& from) { k_ = from.k_, v_ = from.v_, capacity_ = from.capacity_; }
  size_t bytes() const { return (k_.size() + v_.size()) * sizeof(float); }

 private:
  float* k_lane(size_t head, size_t position) {
    return k_.data() + (head * capacity_ + position / kLanes * kLanes) * hd_ + position % kLanes;
  }
  size_t heads_ = 0, hd_ = 0, padded_ = 0, capacity_ = 0;
  base::AlignedVector<float> k_, v_;
};

}  // namespace evalrun::engine::cpu
