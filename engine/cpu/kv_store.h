// Key/value storage of the vector path, laid out for its kernels. T is float, uint16_t (bfloat16),
// int8_t or Fp8 (bytes, one scale per position and head: round_to_bytes, kernels/fp8.h) or uint8_t
// (two codes of 4 bits, scale and offset per position and head: kernels/int4.h). Rounded when
// written, also the rows of the forward that computes them, so a row sees the same values whether
// its ancestors are committed or not.
//   K: blocks of 16 positions, [kv head][position / 16][head_dim][16]: a block is one column of a
//   score tile. V: rows, [kv head][position][padded head_dim].
//   Bytes and codes are followed by four bytes a position, its scale (Int4Steps of codes): 16 after
//   a block of K, one after a row of V. Codes have half as many elements.
// One store holds one layer: of all sequences, each in blocks of positions of its own
// (CacheBlocks), or of the rows of a forward, position = row.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/base/aligned.h"
#include "engine/cpu/chunk_sums.h"
#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kernels/fp8.h"
#include "engine/cpu/kernels/int4.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cpu {

template <typename T>
class KvStore {
 public:
  void configure(int n_kv_heads, int head_dim) {
    heads_ = static_cast<size_t>(n_kv_heads);
    hd_ = static_cast<size_t>(head_dim);
    key_ = kCoded ? int4_key_bytes(hd_) : hd_;
    value_ = kCoded ? int4_value_bytes(hd_) : (hd_ + kLanes - 1) / kLanes * kLanes;
    block_ = key_ * kLanes + (kScaled ? kLanes * kScaleBytes : 0);
    row_ = value_ + (kScaled ? kScaleBytes : 0);
  }
  // Room for `positions`; contents are kept only when the capacity does not change. `touched`: it
  // takes its memory now; otherwise as positions are written. What was never written is in no
  // row's view, and holds anything.
  void reserve(int positions, bool touched = true) {
    const size_t n = (static_cast<size_t>(positions) + kLanes - 1) / kLanes * kLanes;
    if (n <= capacity_) return;
    capacity_ = n;
    k_ = Values(heads_ * (n / kLanes) * block_);
    v_ = Values(heads_ * n * row_);
    if (!touched) return;
    std::fill(k_.begin(), k_.end(), T{});
    std::fill(v_.begin(), v_.end(), T{});
  }
  // Room for `positions`; keeps what it holds.
  void grow(int positions) {
    const size_t held = capacity_;
    if (static_cast<size_t>(positions) <= held) return;
    KvStore larger = *this;
    larger.capacity_ = 0;
    // Doubling: trees of many levels must not copy everything each time.
    larger.reserve(std::max(positions, static_cast<int>(2 * held)));
    larger.copy_positions(*this, 0, 0, static_cast<int>(held));
    *this = std::move(larger);
  }
  const T* k_blocks(int head, int first_block) const {
    return k_.data() +
           (static_cast<size_t>(head) * (capacity_ / kLanes) + static_cast<size_t>(first_block)) *
               block_;
  }
  const T* v_row(int head, int position) const {
    return v_.data() +
           (static_cast<size_t>(head) * capacity_ + static_cast<size_t>(position)) * row_;
  }
  int v_stride() const { return static_cast<int>(row_); }

  // k, v: [n_kv_heads * head_dim] of one position.
  void write(int position, const float* k, const float* v) {
    for (size_t h = 0; h < heads_; ++h) {
      write_key(h, static_cast<size_t>(position), k + h * hd_);
      write_value(h, static_cast<size_t>(position), v + h * hd_);
    }
  }
  // The same of many, by the kernels. Keys of one head of n neighbouring positions of one block,
  // row r at k + r * ldk. No two threads may write to a block of a head at once: its lines have
  // numbers of all its positions.
  void write_keys([[maybe_unused]] const Kernels& kernels, int head, int position, int n,
                  const float* k, int ldk) {
    const auto h = static_cast<size_t>(head), first = static_cast<size_t>(position);
    if constexpr (std::is_same_v<T, uint16_t>)
      kernels.keys_to_bf16(k, ldk, n, static_cast<int>(hd_), position % kLanes,
                           k_lane(h, first / kLanes * kLanes));
    else
      for (size_t p = first; p < first + static_cast<size_t>(n); ++p, k += ldk)
        if constexpr (kCoded) {
          uint8_t codes[kMostDims];
          set_scale(k_scale(h, p), kernels.head_to_int4(k, static_cast<int>(hd_), codes));
          pack_int4_key(codes, hd_, k_lane(h, p), kLanes);
        } else if constexpr (std::is_same_v<T, int8_t>) {
          set_scale(k_scale(h, p),
                    kernels.head_to_bytes(k, static_cast<int>(hd_), k_lane(h, p), kLanes));
        } else {
          write_key(h, p, k);
        }
  }
  // v: [n_kv_heads * head_dim] of one position.
  void write_values([[maybe_unused]] const Kernels& kernels, int position, const float* v) {
    const int n = static_cast<int>(hd_);
    for (size_t h = 0; h < heads_; ++h, v += hd_) {
      T* to = v_lane(h, static_cast<size_t>(position));
      if constexpr (std::is_same_v<T, uint16_t>) {
        kernels.values_to_bf16(v, n, to);
      } else if constexpr (kCoded) {
        uint8_t codes[kMostDims];
        set_scale(to + value_, kernels.head_to_int4(v, n, codes));
        pack_int4_value(codes, hd_, to);
      } else if constexpr (std::is_same_v<T, int8_t>) {
        set_scale(to + value_, kernels.head_to_bytes(v, n, to, 1));
      } else {
        write_value(h, static_cast<size_t>(position), v);
      }
    }
  }
  void read(int position, float* k, float* v) const {
    for (size_t h = 0; h < heads_; ++h) {
      const T* kb = const_cast<KvStore*>(this)->k_lane(h, static_cast<size_t>(position));
      const T* vr = v_row(static_cast<int>(h), position);
      [[maybe_unused]] const T* k_at = nullptr;
      if constexpr (kScaled)
        k_at = const_cast<KvStore*>(this)->k_scale(h, static_cast<size_t>(position));
      for (size_t d = 0; d < hd_; ++d) {
        float &to_k = k[h * hd_ + d], &to_v = v[h * hd_ + d];
        if constexpr (kCoded) {
          to_k = int4_value(int4_key_code(kb, kLanes, d), scale<Int4Steps>(k_at));
          to_v = int4_value(int4_value_code(vr, d), scale<Int4Steps>(vr + value_));
        } else if constexpr (kScaled) {
          to_k = widened(kb[d * kLanes]) * scale<float>(k_at);
          to_v = widened(vr[d]) * scale<float>(vr + value_);
        } else {
          to_k = widened(kb[d * kLanes]), to_v = widened(vr[d]);
        }
      }
    }
  }
  // n positions of another store, from `source` on, to those from `position` on.
  void copy_positions(const KvStore& from, int source, int position, int n) {
    const auto s = static_cast<size_t>(source), p = static_cast<size_t>(position),
               count = static_cast<size_t>(n);
    for (size_t h = 0; h < heads_; ++h) {
      for (size_t i = 0; i < count;) {
        // Whole blocks of K where they lie in both stores as such.
        if ((s + i) % kLanes == 0 && (p + i) % kLanes == 0 && count - i >= kLanes) {
          const T* block =
              from.k_blocks(static_cast<int>(h), (source + static_cast<int>(i)) / kLanes);
          std::copy(block, block + block_, k_lane(h, p + i));
          i += kLanes;
        } else {
          copy_key(from, h, s + i, p + i);
          ++i;
        }
      }
      const T* rows = from.v_row(static_cast<int>(h), source);
      std::copy(rows, rows + count * row_, v_lane(h, p));
    }
  }
  size_t bytes() const { return (k_.size() + v_.size()) * sizeof(T); }
  size_t bytes_per_position() const { return heads_ * (block_ / kLanes + row_) * sizeof(T); }

  static T stored(float x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return float_to_bfloat16(x);
  }
  static float widened(T x) {
    if constexpr (std::is_same_v<T, uint16_t>)
      return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
    else if constexpr (std::is_same_v<T, Fp8>)
      return fp8_value(x);
    else
      return x;
  }

 private:
  using Values = base::UntouchedVector<T>;
  void write_key(size_t head, size_t position, const float* k) {
    T* to = k_lane(head, position);
    if constexpr (kCoded) {
      uint8_t codes[kMostDims];
      set_scale(k_scale(head, position), round_to_int4(k, hd_, codes));
      pack_int4_key(codes, hd_, to, kLanes);
    } else if constexpr (kScaled) {
      set_scale(k_scale(head, position), rounded(k, hd_, to, kLanes));
    } else {
      for (size_t d = 0; d < hd_; ++d) to[d * kLanes] = stored(k[d]);
    }
  }
  void write_value(size_t head, size_t position, const float* v) {
    T* to = v_lane(head, position);
    if constexpr (kCoded) {
      uint8_t codes[kMostDims];
      set_scale(to + value_, round_to_int4(v, hd_, codes));
      pack_int4_value(codes, hd_, to);
    } else if constexpr (kScaled) {
      set_scale(to + value_, rounded(v, hd_, to, 1));
    } else {
      for (size_t d = 0; d < hd_; ++d) to[d] = stored(v[d]);
    }
  }
  void copy_key(const KvStore& from, size_t head, size_t source, size_t position) {
    auto& there = const_cast<KvStore&>(from);
    const T* key = there.k_lane(head, source);
    T* to = k_lane(head, position);
    for (size_t d = 0; d < key_; ++d) to[d * kLanes] = key[d * kLanes];
    if constexpr (kScaled)
      std::memcpy(k_scale(head, position), there.k_scale(head, source), kScaleBytes);
  }
  T* k_lane(size_t head, size_t position) {
    return k_.data() + (head * (capacity_ / kLanes) + position / kLanes) * block_ +
           position % kLanes;
  }
  T* v_lane(size_t head, size_t position) {
    return v_.data() + (head * capacity_ + position) * row_;
  }
  // Of what has scales.
  T* k_scale(size_t head, size_t position) {
    return k_.data() + (head * (capacity_ / kLanes) + position / kLanes) * block_ + key_ * kLanes +
           position % kLanes * kScaleBytes;
  }
  // Of bytes: a head to to[i * stride]; its scale.
  static float rounded(const float* x, size_t n, T* to, size_t stride) {
    if constexpr (std::is_same_v<T, Fp8>)
      return round_to_fp8(x, n, to, stride);
    else
      return round_to_bytes(x, n, to, stride);
  }
  template <typename S>
  static void set_scale(T* at, S value) {
    static_assert(sizeof value == kScaleBytes);
    std::memcpy(at, &value, sizeof value);
  }
  template <typename S>
  static S scale(const T* at) {
    S value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static constexpr bool kCoded = std::is_same_v<T, uint8_t>;
  static constexpr bool kScaled = kCoded || std::is_same_v<T, int8_t> || std::is_same_v<T, Fp8>;
  static constexpr size_t kScaleBytes = 4;
  static constexpr size_t kMostDims = ChunkSums::kMaxWidth;  // Attention refuses wider heads
  size_t heads_ = 0, hd_ = 0, capacity_ = 0;
  size_t key_ = 0, value_ = 0;  // elements of a key, of a value with its padding
  size_t block_ = 0, row_ = 0;  // elements of a block of K, of a row of V, scales included
  Values k_, v_;
};

}  // namespace evalrun::engine::cpu
