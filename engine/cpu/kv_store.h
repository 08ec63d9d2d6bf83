// Key/value storage of the vector path, laid out for its kernels. T is float (the f32 format) or
// uint16_t (bfloat16, every other format; rounded when written, also the rows of the forward that
// computes them, so a row sees the same values whether its ancestors are committed or not).
//   K: blocks of 16 positions, [kv head][position / 16][head_dim][16]: a block is one column of a
//   score tile. V: rows, [kv head][position][padded head_dim].
// One store holds one layer of one sequence (or the rows of a forward, position = row).
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/base/aligned.h"
#include "engine/cpu/arith.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cpu {

template <typename T>
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
    k_.assign(heads_ * n * hd_, T{});
    v_.assign(heads_ * n * padded_, T{});
  }
  const T* k_blocks(int head, int first_block) const {
    return k_.data() +
           (static_cast<size_t>(head) * capacity_ + static_cast<size_t>(first_block) * kLanes) *
               hd_;
  }
  const T* v_row(int head, int position) const {
    return v_.data() +
           (static_cast<size_t>(head) * capacity_ + static_cast<size_t>(position)) * padded_;
  }
  int v_stride() const { return static_cast<int>(padded_); }

  // k, v: [n_kv_heads * head_dim] of one position.
  void write(int position, const float* k, const float* v) {
    for (size_t h = 0; h < heads_; ++h) {
      T* kb = k_lane(h, static_cast<size_t>(position));
      T* vr = v_lane(h, static_cast<size_t>(position));
      for (size_t d = 0; d < hd_; ++d) kb[d * kLanes] = stored(k[h * hd_ + d]);
      for (size_t d = 0; d < hd_; ++d) vr[d] = stored(v[h * hd_ + d]);
    }
  }
  void read(int position, float* k, float* v) const {
    for (size_t h = 0; h < heads_; ++h) {
      const T* kb = const_cast<KvStore*>(this)->k_lane(h, static_cast<size_t>(position));
      const T* vr = v_row(static_cast<int>(h), position);
      for (size_t d = 0; d < hd_; ++d) {
        k[h * hd_ + d] = widened(kb[d * kLanes]);
        v[h * hd_ + d] = widened(vr[d]);
      }
    }
  }
  void copy_position(const KvStore& from, int source, int position) {
    for (size_t h = 0; h < heads_; ++h) {
      const T* kb = const_cast<KvStore&>(from).k_lane(h, static_cast<size_t>(source));
      T* to = k_lane(h, static_cast<size_t>(position));
      for (size_t d = 0; d < hd_; ++d) to[d * kLanes] = kb[d * kLanes];
      const T* vr = from.v_row(static_cast<int>(h), source);
      std::copy(vr, vr + hd_, v_lane(h, static_cast<size_t>(position)));
    }
  }
  size_t bytes() const { return (k_.size() + v_.size()) * sizeof(T); }
  size_t bytes_per_position() const { return heads_ * (hd_ + padded_) * sizeof(T); }

  static T stored(float x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return float_to_bfloat16(x);
  }
  static float widened(T x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
  }

 private:
  T* k_lane(size_t head, size_t position) {
    return k_.data() + (head * capacity_ + position / kLanes * kLanes) * hd_ + position % kLanes;
  }
  T* v_lane(size_t head, size_t position) {
    return v_.data() + (head * capacity_ + position) * padded_;
  }
  size_t heads_ = 0, hd_ = 0, padded_ = 0, capacity_ = 0;
  base::AlignedVector<T> k_, v_;
};

}  // namespace evalrun::engine::cpu
