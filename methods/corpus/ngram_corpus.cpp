#include "methods/corpus/ngram_corpus.h"

#include <algorithm>
#include <limits>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

enum NgramSection { kKeys, kOffsets, kGrams, kCounts, kPerLength };  // for each key length in turn
enum NgramParam { kMaxKey, kGramLength, kTop, kMinCount };

// The counts of one key length. The suffixes come in order, so that equal windows of key and gram
// come one after another, and keys in the order in which they are searched.
class Counter {
 public:
  Counter(PackedTokens text, int key, const NgramOptions& options)
      : text_(text),
        key_(key),
        gram_(options.gram),
        top_(static_cast<size_t>(options.top)),
        min_count_(static_cast<uint64_t>(options.min_count)) {}

  int window() const { return key_ + gram_; }

  // The next suffix, at `place`: it shares `common` tokens with the one before and has `length`
  // before the end of its document (both may be cut at the longest window).
  void next(uint64_t place, int common, int length) {
    if (common < window()) {
      close_gram();
      if (common < key_) close_key();
      place_ = place;
    }
    if (length >= window()) ++count_;
  }

  void finish() {
    close_gram();
    close_key();
    if (counts.size() > std::numeric_limits<uint32_t>::max())
      throw base::usage_error(
          fmt::format("{} grams of keys of {} tokens are more than a file can hold", counts.size(),
                      key_),
          "raise --min-count or lower --top");
  }

  std::vector<int32_t> keys, grams;
  std::vector<uint32_t> offsets = {0}, counts;

 private:
  struct Candidate {
    uint64_t count, place;
  };

  void close_gram() {
    if (count_ >= min_count_) {
      candidates_.push_back({count_, place_});
      if (candidates_.size() >= 2 * top_ + 64) keep_top();
    }
    count_ = 0;
  }

  void close_key() {
    if (candidates_.empty()) return;
    keep_top();
    append(keys, candidates_.front().place, key_);
    for (const Candidate& c : candidates_) {
      append(grams, c.place + static_cast<uint64_t>(key_), gram_);
      counts.push_back(
          static_cast<uint32_t>(std::min<uint64_t>(c.count, std::numeric_limits<uint32_t>::max())));
    }
    offsets.push_back(static_cast<uint32_t>(counts.size()));
    candidates_.clear();
  }

  // Candidates come in order of their ids, and a stable sort keeps this order for equal counts.
  void keep_top() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.count > b.count; });
    if (candidates_.size() > top_) candidates_.resize(top_);
  }

  void append(std::vector<int32_t>& out, uint64_t place, int n) const {
    for (int i = 0; i < n; ++i) out.push_back(text_[place + static_cast<uint64_t>(i)]);
  }

  PackedTokens text_;
  int key_, gram_;
  size_t top_;
  uint64_t min_count_;
  std::vector<Candidate> candidates_;  // of the current key
  uint64_t place_ = 0, count_ = 0;     // of the current window
};

void check_option(const char* name, int value, int max) {
  if (value < 1 || value > max)
    throw base::usage_error(fmt::format("n-grams: {}={} is out of range", name, value),
                            fmt::format("take 1 to {}", max));
}

std::vector<Counter> count_windows(const CorpusText& text, const NgramOptions& options) {
  const PackedTokens packed = text.packed();
  std::vector<Counter> counters;
  for (int key = 1; key <= options.max_key; ++key) counters.emplace_back(packed, key, options);
  const SortedSuffixes sorted = sort_suffixes(text);
  const auto longest = static_cast<size_t>(counters.back().window());
  std::vector<int32_t> window, before;  // up to `longest` tokens of this and the last suffix
  for (uint64_t i = 0; i < sorted.size(); ++i) {
    window.clear();
    for (uint64_t at = sorted[i]; window.size() < longest && packed[at] != text.separator(); ++at)
      window.push_back(packed[at]);
    const auto [end, ignored] =
        std::mismatch(window.begin(), window.end(), before.begin(), before.end());
    const int common = static_cast<int>(end - window.begin());
    for (Counter& counter : counters)
      counter.next(sorted[i], common, static_cast<int>(window.size()));
    std::swap(window, before);
  }
  for (Counter& counter : counters) counter.finish();
  return counters;
}

}  // namespace

NgramCorpus::NgramCorpus(const std::string& path) : file_(path, CorpusKind::kNgrams) {
  const CorpusInfo& i = info();
  const auto check = [&](const char* name, NgramParam p, int max) {
    if (i.params[p] < 1 || i.params[p] > static_cast<uint32_t>(max))
      file_.damaged(name, fmt::format("{}, expected 1 to {}", i.params[p], max));
    return static_cast<int>(i.params[p]);
  };
  const int max_key = check("max_key", kMaxKey, kMaxNgramKey);
  gram_ = check("gram", kGramLength, kMaxGram);
  check("top", kTop, kMaxNgramTop);
  check("min_count", kMinCount, std::numeric_limits<int>::max());
  for (int n = 1; n <= max_key; ++n) {
    const size_t first = static_cast<size_t>(n - 1) * kPerLength;
    Table t;
    t.keys = file_.section<int32_t>(first + kKeys);
    t.offsets = file_.section<uint32_t>(first + kOffsets);
    t.grams = file_.section<int32_t>(first + kGrams);
    t.counts = file_.section<uint32_t>(first + kCounts);
    t.n_keys = t.keys.size() / static_cast<size_t>(n);
    if (t.keys.size() % static_cast<size_t>(n) != 0 || t.offsets.size() != t.n_keys + 1 ||
        t.grams.size() != t.counts.size() * static_cast<size_t>(gram_))
      file_.damaged(fmt::format("keys of {} tokens", n),
                    fmt::format("{} key ids, {} offsets, {} gram ids and {} counts do not fit",
                                t.keys.size(), t.offsets.size(), t.grams.size(), t.counts.size()));
    tables_.push_back(t);
  }
}

NgramOptions NgramCorpus::options() const {
  const auto param = [this](NgramParam p) { return static_cast<int>(info().params[p]); };
  return {param(kMaxKey), param(kGramLength), param(kTop), param(kMinCount)};
}

NgramCorpus::Stats NgramCorpus::stats(int key_length) const {
  EVALRUN_CHECK(key_length >= 1 && key_length <= max_key(), "keys of {} tokens", key_length);
  const Table& t = tables_[static_cast<size_t>(key_length - 1)];
  return {key_length, t.n_keys, t.counts.size()};
}

NgramCorpus::Grams NgramCorpus::find(std::span<const int32_t> key) const {
  EVALRUN_CHECK(!key.empty() && key.size() <= tables_.size(), "a key of {} tokens, 1 to {}",
                key.size(), tables_.size());
  const Table& t = tables_[key.size() - 1];
  const auto key_at = [&](uint64_t i) { return t.keys.subspan(i * key.size(), key.size()); };
  uint64_t low = 0, high = t.n_keys;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const auto other = key_at(middle);
    if (std::lexicographical_compare(other.begin(), other.end(), key.begin(), key.end()))
      low = middle + 1;
    else
      high = middle;
  }
  Grams grams;
  if (low == t.n_keys || !std::equal(key.begin(), key.end(), key_at(low).begin())) return grams;
  const uint64_t begin = t.offsets[low], end = t.offsets[low + 1];
  if (begin > end || end > t.counts.size() || end - begin > info().params[kTop]) [[unlikely]]
    file_.damaged(fmt::format("key {} of {} tokens", low, key.size()),
                  fmt::format("grams {} to {} of {}", begin, end, t.counts.size()));
  grams.n_ = static_cast<size_t>(gram_);
  grams.tokens_ = t.grams.subspan(begin * grams.n_, (end - begin) * grams.n_);
  grams.counts_ = t.counts.subspan(begin, end - begin);
  for (const int32_t id : grams.tokens_)
    if (id < 0 || id >= info().vocabulary.size) [[unlikely]]
      file_.damaged(fmt::format("grams of key {} of {} tokens", low, key.size()),
                    fmt::format("id {} of {}", id, info().vocabulary.size));
  return grams;
}

CorpusInfo build_ngram_corpus(const std::string& path, const CorpusText& text,
                              const NgramOptions& options) {
  check_option("max_key", options.max_key, kMaxNgramKey);
  check_option("gram", options.gram, kMaxGram);
  check_option("top", options.top, kMaxNgramTop);
  check_option("min_count", options.min_count, std::numeric_limits<int>::max());
  const std::vector<Counter> counters = count_windows(text, options);
  CorpusInfo info;
  info.kind = CorpusKind::kNgrams;
  info.vocabulary = text.vocabulary();
  info.source = text.source();
  info.params[kMaxKey] = static_cast<uint32_t>(options.max_key);
  info.params[kGramLength] = static_cast<uint32_t>(options.gram);
  info.params[kTop] = static_cast<uint32_t>(options.top);
  info.params[kMinCount] = static_cast<uint32_t>(options.min_count);
  std::vector<std::span<const uint8_t>> sections;
  for (const Counter& c : counters)
    for (const auto& section :
         {bytes_of(c.keys), bytes_of(c.offsets), bytes_of(c.grams), bytes_of(c.counts)})
      sections.push_back(section);
  write_corpus(path, info, sections);
  return info;
}

}  // namespace evalrun::methods
