#include "methods/lookup/logit_grams.h"

#include <algorithm>
#include <bit>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::methods {

LogitGrams::LogitGrams(int longest, int k) : longest_(longest), k_(static_cast<size_t>(k)) {
  EVALRUN_CHECK(1 <= longest && longest <= kLongest && k >= 1, "n-grams of {}, {} candidates",
                longest, k);
  mixed_.reserve(2 * k_);
  start(1);
}

void LogitGrams::start(int adds) {
  const auto most = static_cast<size_t>(std::max(adds, 1)) * static_cast<size_t>(longest_);
  slots_.assign(std::bit_ceil(2 * most), -1);  // at most half full, so that probes stay short
  grams_.clear();
  grams_.reserve(most);
  kept_.clear();
  kept_.reserve(most * k_);
}

size_t LogitGrams::slot_of(std::span<const int32_t> key) const {
  uint64_t hash = key.size();
  for (const int32_t token : key) hash = base::mix64(hash ^ static_cast<uint32_t>(token));
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot] >= 0) {
    const Gram& gram = grams_[static_cast<size_t>(slots_[slot])];
    if (static_cast<size_t>(gram.n) == key.size() &&
        std::equal(key.begin(), key.end(), gram.key.begin()))
      break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void LogitGrams::add(std::span<const int32_t> context, std::span<const Candidate> said) {
  for (size_t n = 1; n <= std::min(context.size(), static_cast<size_t>(longest_)); ++n) {
    const auto key = context.last(n);
    int32_t& slot = slots_[slot_of(key)];
    if (slot < 0) {
      EVALRUN_CHECK(2 * grams_.size() < slots_.size(), "more n-grams than were promised");
      slot = static_cast<int32_t>(grams_.size());
      Gram gram{};
      std::copy(key.begin(), key.end(), gram.key.begin());
      gram.n = static_cast<int>(n);
      grams_.push_back(gram);
      kept_.resize(kept_.size() + k_);
    }
    const auto at = static_cast<size_t>(slot);
    mix(grams_[at], kept_.data() + at * k_, said);
  }
}

void LogitGrams::mix(Gram& gram, Candidate* kept, std::span<const Candidate> said) {
  const auto before = static_cast<float>(gram.seen), all = static_cast<float>(gram.seen + 1);
  mixed_.clear();
  for (int i = 0; i < gram.candidates; ++i)
    mixed_.push_back({kept[i].token, kept[i].probability * before / all});
  const auto known = static_cast<std::ptrdiff_t>(mixed_.size());
  for (const Candidate& c : said) {
    if (!(c.probability > 0)) continue;
    const auto there = std::find_if(mixed_.begin(), mixed_.begin() + known,
                                    [&](const Candidate& m) { return m.token == c.token; });
    if (there != mixed_.begin() + known)
      there->probability += c.probability / all;
    else
      mixed_.push_back({c.token, c.probability / all});
  }
  std::sort(mixed_.begin(), mixed_.end(), [](const Candidate& a, const Candidate& b) {
    return a.probability > b.probability || (a.probability == b.probability && a.token < b.token);
  });
  const size_t n = std::min(mixed_.size(), k_);
  std::copy_n(mixed_.begin(), n, kept);
  gram.candidates = static_cast<int>(n);
  ++gram.seen;
}

std::span<const LogitGrams::Candidate> LogitGrams::find(std::span<const int32_t> context) const {
  for (size_t n = std::min(context.size(), static_cast<size_t>(longest_)); n > 0; --n) {
    const int32_t slot = slots_[slot_of(context.last(n))];
    if (slot < 0) continue;
    const auto at = static_cast<size_t>(slot);
    return {kept_.data() + at * k_, static_cast<size_t>(grams_[at].candidates)};
  }
  return {};
}

}  // namespace evalrun::methods
