#include "evaluators/text/lcs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace evalrun::evaluators {

namespace {

constexpr size_t kRowsInOnePiece = 256 * 1024 / sizeof(uint64_t);

size_t blocks_of(size_t n_words) { return (n_words + 63) / 64; }

}  // namespace

size_t lcs_steps(size_t n_a, size_t n_b) { return n_a * blocks_of(n_b) + n_b + 64; }

void Lcs::set_b(std::span<const WordId> b) {
  for (const Slot& slot : slots_) slot_of_[slot.word] = kNone;
  b_ = b;
  n_blocks_ = blocks_of(b.size());
  slots_.clear();
  for (const WordId word : b) {
    if (slot_of_[word] == kNone) {
      slot_of_[word] = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back().word = word;
    }
    ++slots_[slot_of_[word]].end;
  }
  uint32_t next = 0;
  size_t next_mask = 0;
  for (Slot& slot : slots_) {
    const uint32_t count = slot.end;
    slot.begin = slot.end = next;
    next += count;
    slot.mask = kNoMask;
    if (count >= n_blocks_) {
      slot.mask = next_mask;
      next_mask += n_blocks_;
    }
  }
  places_.resize(b.size());
  masks_.assign(next_mask, 0);
  scratch_.assign(n_blocks_, 0);
  for (size_t j = 0; j < b.size(); ++j) {
    Slot& slot = slots_[slot_of_[b[j]]];
    places_[slot.end++] = static_cast<uint32_t>(j);
    if (slot.mask != kNoMask) masks_[slot.mask + j / 64] |= uint64_t{1} << (j % 64);
  }
}

void Lcs::next_row(const uint64_t* before, WordId word, uint64_t* after) {
  const uint32_t at = slot_of_[word];
  if (at == kNone) {  // no match, nothing changes
    if (before != after) std::copy_n(before, n_blocks_, after);
    return;
  }
  const Slot& slot = slots_[at];
  const uint64_t* mask = scratch_.data();
  if (slot.mask != kNoMask) {
    mask = masks_.data() + slot.mask;
  } else {
    for (uint32_t p = slot.begin; p < slot.end; ++p)
      scratch_[places_[p] / 64] |= uint64_t{1} << (places_[p] % 64);
  }
  uint64_t carry = 0;
  for (size_t k = 0; k < n_blocks_; ++k) {
    const uint64_t row = before[k], hit = row & mask[k];
    const uint64_t partial = row + hit, sum = partial + carry;
    carry = static_cast<uint64_t>(partial < row) | static_cast<uint64_t>(sum < partial);
    after[k] = sum | (row & ~mask[k]);
  }
  if (slot.mask == kNoMask)
    for (uint32_t p = slot.begin; p < slot.end; ++p) scratch_[places_[p] / 64] = 0;
}

size_t Lcs::length(std::span<const WordId> a) {
  if (b_.empty()) return 0;
  rows_.assign(n_blocks_, ~uint64_t{0});
  for (const WordId word : a) next_row(rows_.data(), word, rows_.data());
  // Bits after the last word of b stay set, except for carries out of it, which are not counted.
  size_t zeros = 0;
  for (size_t k = 0; k < n_blocks_; ++k) {
    const size_t n = std::min<size_t>(64, b_.size() - 64 * k);
    const uint64_t valid = n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
    zeros += static_cast<size_t>(std::popcount(~rows_[k] & valid));
  }
  return zeros;
}

void Lcs::keep_checkpoints(std::span<const WordId> a) {
  stride_ = a.size();
  if (a.size() * n_blocks_ > kRowsInOnePiece)
    stride_ = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(a.size()))));
  const size_t n_segments = (a.size() + stride_ - 1) / stride_;
  checkpoints_.assign(n_segments * n_blocks_, ~uint64_t{0});
  for (size_t s = 1; s < n_segments; ++s) {
    uint64_t* row = checkpoints_.data() + s * n_blocks_;
    std::copy_n(row - n_blocks_, n_blocks_, row);
    for (size_t i = (s - 1) * stride_; i < s * stride_; ++i) next_row(row, a[i], row);
  }
  rows_.resize(std::max(rows_.size(), stride_ * n_blocks_));
}

void Lcs::compute_segment(std::span<const WordId> a, size_t segment) {
  const uint64_t* before = checkpoints_.data() + segment * n_blocks_;
  uint64_t* row = rows_.data();
  for (size_t i = segment * stride_; i < std::min(a.size(), (segment + 1) * stride_); ++i) {
    next_row(before, a[i], row);
    before = row;
    row += n_blocks_;
  }
}

}  // namespace evalrun::evaluators
