#include "engine/tokenizer/subword/bpe.h"

#include <algorithm>
#include <queue>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace evalrun::engine {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

BpeModel::BpeModel(std::shared_ptr<const Vocabulary> vocabulary,
                   const std::vector<std::pair<std::string, std::string>>& merges,
                   BpeOptions options, const std::string& file, const std::string& field)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      byte_ids_(byte_fallback_ids(*vocabulary_)) {
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto id_of = [&](const std::string& text) {
      const std::optional<int32_t> id = vocabulary_->find(text);
      if (!id)
        throw base::data_error(
            file, fmt::format("{}[{}]", field, rank),
            fmt::format("'{}' of the merge '{} {}' is not in the vocabulary", text, left, right),
            "vocabulary and merges must come from the same tokenizer");
      return *id;
    };
    const uint64_t key = pair_key(id_of(left), id_of(right));
    merges_[key] = {static_cast<int32_t>(rank), id_of(left + right)};
  }
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BpeModel::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_->find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  std::vector<int32_t> symbols = initial_ids(word);
  merge_all(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

std::vector<int32_t> BpeModel::initial_ids(std::string_view word) const {
  std::vector<int32_t> ids;
  bool pending_unk = false;  // emitted late, so that neighbours can be fused into it
  for (size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, base::utf8_step(word.substr(at)).length);
    at += character.size();
    if (const auto id = vocabulary_->find(character)) {
      if (pending_unk) ids.push_back(*options_.unk_id);
      pending_unk = false;
      ids.push_back(*id);
      continue;
    }
    const auto byte_id = [&](char b) { return byte_ids_[static_cast<uint8_t>(b)]; };
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                              [&](char b) { return byte_id(b).has_value(); })) {
      // Differs from what one expects: a pending unknown token comes after these bytes. That is how
      // `tokenizers` does it; it only shows in vocabularies that lack some of the byte tokens.
      for (char b : character) ids.push_back(*byte_id(b));
      continue;
    }
    if (!options_.unk_id) continue;
    if (pending_unk && !options_.fuse_unk) ids.push_back(*options_.unk_id);
    pending_unk = true;
  }
  if (pending_unk) ids.push_back(*options_.unk_id);
  return ids;
}

void BpeModel::merge_all(std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1: none
  };
  struct Candidate {
    int32_t rank, position, merged_id;
    bool operator<(const Candidate& other) const {  // priority_queue pops the largest
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const int32_t n = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  std::vector<Candidate> found;
  for (int32_t i = 0; i < n; ++i) {
    symbols[static_cast<size_t>(i)] = {ids[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
    if (i + 1 == n) break;
    const Merge* merge = find_merge(ids[static_cast<size_t>(i)], ids[static_cast<size_t>(i) + 1]);
    if (merge != nullptr) found.push_back({merge->rank, i, merge->merged_id});
  }
  std::priority_queue<Candidate> queue({}, std::move(found));
  const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  constexpr int32_t kGone = -1;

  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = at(top.position);
    if (left.id == kGone || left.next < 0) continue;
    Symbol& right = at(left.next);
    const Merge* merge = find_merge(left.id, right.id);
    // One of the two merged with another neighbour since this candidate was queued.
    if (merge == nullptr || merge->merged_id != top.merged_id) continue;
    left.id = top.merged_id;
    right.id = kGone;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = top.position;
    if (left.previous >= 0) {
      const Merge* before = find_merge(at(left.previous).id, left.id);
      if (before != nullptr) queue.push({before->rank, left.previous, before->merged_id});
    }
    if (left.next >= 0) {
      const Merge* after = find_merge(left.id, at(left.next).id);
      if (after != nullptr) queue.push({after->rank, top.position, after->merged_id});
    }
  }
  ids.clear();
  for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = at(i).next) ids.push_back(at(i).id);
}

}  // namespace evalrun::engine
