#include "methods/corpus/suffix_corpus.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

enum SuffixSection { kText, kPlaces };          // packed tokens; the suffix array
enum SuffixParam { kTokenBytes, kPlaceBytes };  // 2 or 3; 4 or 8

// First index of [begin, end) for which `before` is false.
template <typename Before>
uint64_t partition_point(uint64_t begin, uint64_t end, const Before& before) {
  while (begin < end) {
    const uint64_t middle = begin + (end - begin) / 2;
    if (before(middle))
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

}  // namespace

SuffixCorpus::SuffixCorpus(const std::string& path) : file_(path, CorpusKind::kSuffixes) {
  const CorpusInfo& i = info();
  text_.width = packed_width(i.vocabulary.size);
  if (i.params[kTokenBytes] != static_cast<uint32_t>(text_.width))
    file_.damaged("token bytes",
                  fmt::format("{}, expected {}", i.params[kTokenBytes], text_.width));
  const std::span<const uint8_t> text = file_.section<uint8_t>(kText);
  text_.bytes = text.data();
  text_.length = text.size() / static_cast<uint64_t>(text_.width);
  if (i.params[kPlaceBytes] == 8)
    wide_ = file_.section<uint64_t>(kPlaces);
  else if (i.params[kPlaceBytes] == 4)
    narrow_ = file_.section<uint32_t>(kPlaces);
  else
    file_.damaged("place bytes", fmt::format("{}, expected 4 or 8", i.params[kPlaceBytes]));
  size_ = narrow_.size() + wide_.size();
  if (i.source.tokens != size_ || size_ > text_.length ||
      text_.length - size_ != i.source.documents ||
      text.size() % static_cast<uint64_t>(text_.width) != 0)
    file_.damaged("tokens", fmt::format("{} tokens in {} documents, but {} suffixes and {} bytes",
                                        i.source.tokens, i.source.documents, size_, text.size()));
}

uint64_t SuffixCorpus::place(uint64_t index) const {
  const uint64_t at = wide_.empty() ? narrow_[index] : wide_[index];
  if (at >= text_.length) [[unlikely]]
    file_.damaged(fmt::format("suffix {}", index), fmt::format("at {} of {}", at, text_.length));
  return at;
}

// The id, the separator included; after the end of the text the separator again.
uint32_t SuffixCorpus::id_behind(uint64_t place, uint64_t depth) const {
  const auto separator = static_cast<uint32_t>(info().vocabulary.size);
  if (depth >= text_.length - place) return separator;
  const auto id = static_cast<uint32_t>(text_[place + depth]);
  if (id > separator) [[unlikely]]
    file_.damaged(fmt::format("token {}", place + depth),
                  fmt::format("id {} of {}", id, separator));
  return id;
}

int32_t SuffixCorpus::token_behind(uint64_t place, uint64_t depth) const {
  const uint32_t id = id_behind(place, depth);
  return id == static_cast<uint32_t>(info().vocabulary.size) ? -1 : static_cast<int32_t>(id);
}

// A suffix against a pattern: < 0 when it sorts before, 0 when it begins with the pattern.
int SuffixCorpus::compare(uint64_t index, std::span<const int32_t> pattern) const {
  const uint64_t at = place(index);
  for (size_t i = 0; i < pattern.size(); ++i) {
    const auto id = static_cast<int32_t>(id_behind(at, i));
    if (id != pattern[i]) return id < pattern[i] ? -1 : 1;
  }
  return 0;
}

SuffixCorpus::Range SuffixCorpus::find(std::span<const int32_t> pattern) const {
  for (const int32_t token : pattern)  // a separator of ours would match the ends of documents
    if (token < 0 || token >= info().vocabulary.size) return {};
  const uint64_t begin =
      partition_point(0, size_, [&](uint64_t i) { return compare(i, pattern) < 0; });
  if (begin == size_ || compare(begin, pattern) != 0) return {};
  // Most phrases are rare: doubling steps find the end near the beginning.
  uint64_t step = 1;
  while (step < size_ - begin && compare(begin + step, pattern) == 0) step *= 2;
  const uint64_t end = partition_point(begin + step / 2, begin + std::min(step, size_ - begin),
                                       [&](uint64_t i) { return compare(i, pattern) == 0; });
  return {begin, end};
}

CorpusInfo build_suffix_corpus(const std::string& path, const CorpusText& text, bool wide) {
  const SortedSuffixes sorted = sort_suffixes(text, wide);
  CorpusInfo info;
  info.kind = CorpusKind::kSuffixes;
  info.vocabulary = text.vocabulary();
  info.source = text.source();
  info.params[kTokenBytes] = static_cast<uint32_t>(text.packed().width);
  info.params[kPlaceBytes] = sorted.wide.empty() ? 4 : 8;
  const std::array<std::span<const uint8_t>, 2> sections = {
      text.bytes(), sorted.wide.empty() ? bytes_of(sorted.narrow) : bytes_of(sorted.wide)};
  write_corpus(path, info, sections);
  return info;
}

}  // namespace evalrun::methods
