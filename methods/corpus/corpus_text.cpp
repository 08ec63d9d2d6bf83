#include "methods/corpus/corpus_text.h"

#include <divsufsort.h>
#include <divsufsort64.h>

#include <limits>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

// Keeps the places of whole tokens; those of separators stand last, the separator being the largest
// id.
template <typename Place, typename Index>
std::vector<Place> keep_tokens(std::vector<Index> sorted, int width, uint64_t tokens) {
  std::vector<Place> kept;
  kept.reserve(tokens);
  for (const Index byte : sorted) {
    if (kept.size() == tokens) break;
    if (byte % width == 0) kept.push_back(static_cast<Place>(byte / width));
  }
  EVALRUN_CHECK(kept.size() == tokens, "{} suffixes of {} tokens", kept.size(), tokens);
  return kept;
}

}  // namespace

int packed_width(int vocabulary_size) { return vocabulary_size < 1 << 16 ? 2 : 3; }

CorpusText::CorpusText(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), width_(packed_width(vocabulary_.size)) {
  EVALRUN_CHECK(vocabulary_.size >= 1 && vocabulary_.size <= kMaxVocabulary, "{} ids",
                vocabulary_.size);
}

PackedTokens CorpusText::packed() const {
  return {bytes_.data(), bytes_.size() / static_cast<uint64_t>(width_), width_};
}

void CorpusText::add_document(std::span<const int32_t> tokens) {
  if (tokens.empty()) return;
  const auto put = [this](int32_t id) {
    if (width_ == 3) bytes_.push_back(static_cast<uint8_t>(id >> 16));
    bytes_.push_back(static_cast<uint8_t>(id >> 8));
    bytes_.push_back(static_cast<uint8_t>(id));
  };
  for (const int32_t id : tokens) {
    EVALRUN_CHECK(id >= 0 && id < vocabulary_.size, "id {} of {}", id, vocabulary_.size);
    put(id);
  }
  put(separator());
  ++source_.documents;
  source_.tokens += tokens.size();
}

SortedSuffixes sort_suffixes(const CorpusText& text, bool wide) {
  const std::span<const uint8_t> bytes = text.bytes();
  const PackedTokens packed = text.packed();
  const uint64_t tokens = text.source().tokens;
  const bool large = bytes.size() > static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  SortedSuffixes result;
  if (tokens == 0) return result;
  if (!wide && !large) {
    std::vector<int32_t> sorted(bytes.size());
    if (divsufsort(bytes.data(), sorted.data(), static_cast<int32_t>(bytes.size())) != 0)
      throw std::bad_alloc();
    result.narrow = keep_tokens<uint32_t>(std::move(sorted), packed.width, tokens);
    return result;
  }
  std::vector<int64_t> sorted(bytes.size());
  if (divsufsort64(bytes.data(), sorted.data(), static_cast<int64_t>(bytes.size())) != 0)
    throw std::bad_alloc();
  if (!wide && packed.length <= uint64_t{1} << 32)
    result.narrow = keep_tokens<uint32_t>(std::move(sorted), packed.width, tokens);
  else
    result.wide = keep_tokens<uint64_t>(std::move(sorted), packed.width, tokens);
  return result;
}

}  // namespace evalrun::methods
