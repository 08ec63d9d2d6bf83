// Buffers: rows of floats, and rows rounded to what a product takes. Both only grow, so a steady
// state allocates nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/cpu/kernels/kernels.h"

namespace evalrun::engine::cpu {

struct Rows {
  base::AlignedVector<float> data;
  size_t width = 0;
  void ensure(size_t rows, size_t w) {
    width = w;
    if (data.size() < rows * w) data.resize(rows * w);
  }
  float* row(size_t i) { return data.data() + i * width; }
  int ld() const { return static_cast<int>(width); }
  size_t bytes() const { return data.size() * sizeof(float); }
};

class PreparedRows {
 public:
  // Room for `rows` inputs of any matrix of this storage with up to `widest` inputs. Rows for
  // K-quants serve matrices of all storages of integers.
  void ensure(const Kernels& kernels, WeightStorage storage, size_t rows, int widest) {
    kernels_ = &kernels;
    for_k_ = k_bits(storage) != 0;
    const auto padded = static_cast<size_t>(padded_for(widest));
    grow(values_, rows * stride_for(storage, widest));
    if (storage == WeightStorage::kF32 || storage == WeightStorage::kBf16) return;
    grow(headers_, rows), grow(sums_, rows * (padded / 32));
    grow(wide_, rows * (padded / 4));
    if (!for_k_) return;
    grow(pairs_, rows * (padded / 64)), grow(starts_, rows * (padded / 16));
  }
  // Rounds x [w.in()] into row i, as the input of a product with w or another matrix of as many
  // inputs that ensure() allows. Different rows may be set by different threads.
  void set(size_t i, const WeightMatrix& w, const float* x) {
    const int padded = w.padded_in();
    std::byte* to = values_.data() + i * stride_for(w.storage(), w.in());
    if (w.storage() == WeightStorage::kF32)
      std::memcpy(to, x, static_cast<size_t>(w.in()) * sizeof(float));
    else if (w.storage() == WeightStorage::kBf16)
      kernels_->round_bf16(x, w.in(), padded, to);
    else
      headers_[i].n_wide = kernels_->round_int(x, w.in(), padded, integer_row(i, padded / 32, to));
  }
  InputRows view(const WeightMatrix& w) const {
    EVALRUN_CHECK(for_k_ || k_bits(w.storage()) == 0, "these rows are not for K-quants");
    return {values_.data(),     stride_for(w.storage(), w.in()),
            headers_.data(),    sums_.data(),
            w.padded_in() / 32, wide_.data(),
            pairs_.data(),      starts_.data()};
  }
  size_t bytes() const {
    const size_t words = sums_.size() + pairs_.size() + starts_.size();
    return values_.size() + words * 4 + headers_.size() * sizeof(RowHeader) +
           wide_.size() * sizeof(WideInputs);
  }

 private:
  IntegerRow integer_row(size_t i, int n_groups, std::byte* values) {
    const auto groups = static_cast<size_t>(n_groups);
    return {values,
            &headers_[i].scale,
            &sums_[i * groups],
            &wide_[i * groups * 8],
            for_k_ ? &pairs_[i * (groups / 2)] : nullptr,
            for_k_ ? &starts_[i * groups * 2] : nullptr};
  }
  template <typename V>
  static void grow(base::AlignedVector<V>& v, size_t n) {
    if (v.size() < n) v.resize(n);
  }
  static int padded_for(int n_in) {
    return (n_in + WeightMatrix::kBlock - 1) / WeightMatrix::kBlock * WeightMatrix::kBlock;
  }
  size_t stride_for(WeightStorage storage, int n_in) const {
    const auto padded = static_cast<size_t>(padded_for(n_in));
    switch (storage) {
      case WeightStorage::kF32:
        return padded * sizeof(float);
      case WeightStorage::kBf16:
        return padded * static_cast<size_t>(kernels_->bytes_per_bf16);
      default:
        return padded;
    }
  }
  const Kernels* kernels_ = nullptr;
  bool for_k_ = false;
  base::AlignedVector<std::byte> values_;
  base::AlignedVector<RowHeader> headers_;
  base::AlignedVector<int32_t> sums_, pairs_, starts_;
  base::AlignedVector<WideInputs> wide_;
};

}  // namespace evalrun::engine::cpu
