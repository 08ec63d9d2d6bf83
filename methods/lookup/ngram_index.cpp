#include "methods/lookup/ngram_index.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::methods {

NgramIndex::NgramIndex(int min_n, int max_n, Match match) : match_(match) {
  EVALRUN_CHECK(1 <= min_n && min_n <= max_n, "n-grams of {} to {} tokens", min_n, max_n);
  for (int n = max_n; n >= min_n; --n) {
    tables_.emplace_back();
    tables_.back().n = n;
  }
  key_.reserve(static_cast<size_t>(max_n));
}

void NgramIndex::start(int max_length) {
  max_length_ = max_length;
  // At most half full, so that probes stay short.
  const size_t slots = std::bit_ceil(2 * static_cast<size_t>(std::max(max_length, 1)));
  for (Table& table : tables_) {
    table.indexed = 0;
    table.start.assign(slots, -1);
    if (match_ == Match::kRecent)
      table.previous.assign(static_cast<size_t>(std::max(max_length, 1)), -1);
  }
}

size_t NgramIndex::slot_of(const Table& table, std::span<const int32_t> sequence,
                           std::span<const int32_t> key) {
  const size_t n = key.size();
  uint64_t hash = n;
  for (int32_t token : key) hash = base::mix64(hash ^ static_cast<uint32_t>(token));
  const size_t mask = table.start.size() - 1;
  size_t slot = hash & mask;
  while (table.start[slot] >= 0) {
    const auto other = sequence.subspan(static_cast<size_t>(table.start[slot]), n);
    if (std::equal(key.begin(), key.end(), other.begin())) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

int NgramIndex::find(std::span<const int32_t> sequence) {
  const int length = static_cast<int>(sequence.size());
  EVALRUN_CHECK(length <= max_length_, "{} tokens in an index made for {}", length, max_length_);
  int found = -1;
  matched_ = 0;
  for (Table& table : tables_) {
    // Every table is extended, also when a longer n-gram has matched: occurrences with a token
    // after them start before length - n.
    for (; table.indexed < length - table.n; ++table.indexed) {
      int32_t& slot = table.start[slot_at(table, sequence, table.indexed)];
      if (match_ == Match::kRecent)
        table.previous[static_cast<size_t>(table.indexed)] = std::exchange(slot, table.indexed);
      else if (slot < 0)
        slot = table.indexed;
    }
    if (found >= 0 || length < table.n) continue;
    const int32_t at = table.start[slot_at(table, sequence, length - table.n)];
    if (at < 0) continue;
    found = at + table.n;
    matched_ = table.n;
  }
  return found;
}

int NgramIndex::find_with(std::span<const int32_t> sequence, std::span<const int32_t> tail) {
  for (const Table& table : tables_) {
    const auto n = static_cast<size_t>(table.n);
    const size_t behind = std::min(n, tail.size()), before = n - behind;
    if (sequence.size() < before) continue;
    const auto end = sequence.last(before), guessed = tail.last(behind);
    key_.assign(end.begin(), end.end());
    key_.insert(key_.end(), guessed.begin(), guessed.end());
    const int32_t at = table.start[slot_of(table, sequence, key_)];
    if (at >= 0) return at + table.n;
  }
  return -1;
}

int NgramIndex::earlier(int position) const {
  EVALRUN_CHECK(matched_ > 0 && match_ == Match::kRecent, "no occurrences to walk through");
  const Table& table = tables_[static_cast<size_t>(tables_.front().n - matched_)];
  const int at = table.previous[static_cast<size_t>(position - matched_)];
  return at < 0 ? -1 : at + matched_;
}

}  // namespace evalrun::methods
