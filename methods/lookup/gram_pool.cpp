#include "methods/lookup/gram_pool.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

GramPool::GramPool(int vocab, int length, int capacity)
    : length_(static_cast<size_t>(length)), capacity_(static_cast<size_t>(capacity)) {
  EVALRUN_CHECK(vocab >= 1 && length >= 1 && capacity >= 1, "{} grams of {} tokens, {} ids",
                capacity, length, vocab);
  slot_of_.assign(static_cast<size_t>(vocab), -1);
}

void GramPool::clear() {
  for (const Slot& slot : slots_) slot_of_[static_cast<size_t>(slot.key)] = -1;
  slots_.clear();
  grams_.clear();
}

void GramPool::insert(int32_t key, std::span<const int32_t> gram) {
  EVALRUN_CHECK(gram.size() == length_, "a gram of {} tokens, not {}", gram.size(), length_);
  int32_t& index = slot_of_[static_cast<size_t>(key)];
  if (index < 0) {
    if (slots_.size() == slots_.capacity()) make_room();
    index = static_cast<int32_t>(slots_.size());
    slots_.push_back({key, 0});
    grams_.resize(slots_.size() * capacity_ * length_);
  }
  Slot& slot = slots_[static_cast<size_t>(index)];
  int32_t* const grams = grams_of(static_cast<size_t>(index));
  const auto n = static_cast<size_t>(slot.count);
  size_t at = 0;
  while (at < n && !std::equal(gram.begin(), gram.end(), grams + at * length_)) ++at;
  if (at == n && n == capacity_) at = 0;  // the oldest makes room
  if (at < n)
    std::copy(grams + (at + 1) * length_, grams + n * length_, grams + at * length_);
  else
    ++slot.count;
  std::copy(gram.begin(), gram.end(), grams + (static_cast<size_t>(slot.count) - 1) * length_);
}

// By doubling, up to a slot for each id.
void GramPool::make_room() {
  const size_t slots = std::min(std::max<size_t>(2 * slots_.size(), 16), slot_of_.size());
  slots_.reserve(slots);
  grams_.reserve(slots * capacity_ * length_);
}

int GramPool::count(int32_t key) const {
  const int32_t index = slot_of_[static_cast<size_t>(key)];
  return index < 0 ? 0 : slots_[static_cast<size_t>(index)].count;
}

std::span<const int32_t> GramPool::gram(int32_t key, int i) const {
  const auto slot = static_cast<size_t>(slot_of_[static_cast<size_t>(key)]);
  return {grams_.data() + (slot * capacity_ + static_cast<size_t>(i)) * length_, length_};
}

}  // namespace evalrun::methods
