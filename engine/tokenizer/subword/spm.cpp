#include "engine/tokenizer/subword/spm.h"

#include <queue>

#include "engine/base/error.h"
#include "engine/base/utf8.h"

namespace evalrun::engine {

SpmModel::SpmModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores,
                   std::optional<int32_t> unk_id)
    : vocabulary_(std::move(vocabulary)),
      scores_(std::move(scores)),
      unk_id_(unk_id),
      byte_ids_(byte_fallback_ids(*vocabulary_)) {
  EVALRUN_CHECK(scores_.size() == static_cast<size_t>(vocabulary_->size()));
}

void SpmModel::emit(std::string_view symbol, std::vector<int32_t>& ids) const {
  if (const auto id = vocabulary_->find(symbol)) {
    ids.push_back(*id);
    return;
  }
  for (char b : symbol) {
    const auto byte_id = byte_ids_[static_cast<uint8_t>(b)];
    if (byte_id)
      ids.push_back(*byte_id);
    else if (unk_id_)
      ids.push_back(*unk_id_);
  }
}

void SpmModel::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  struct Symbol {
    size_t begin, length;    // length 0: merged into its left neighbour
    int32_t previous, next;  // -1: none
  };
  struct Candidate {
    float score;
    int32_t left, right;
    size_t length;
    bool operator<(const Candidate& other) const {  // priority_queue pops the largest
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < word.size();) {
    const size_t length = base::utf8_step(word.substr(at)).length;
    const auto i = static_cast<int32_t>(symbols.size());
    symbols.push_back({at, length, i - 1, at + length < word.size() ? i + 1 : -1});
    at += length;
  }
  const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const size_t length = at(left).length + at(right).length;
    const auto id = vocabulary_->find(word.substr(at(left).begin, length));
    if (id) queue.push({scores_[static_cast<size_t>(*id)], left, right, length});
  };
  for (size_t i = 1; i < symbols.size(); ++i)
    consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));

  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = at(top.left);
    Symbol& right = at(top.right);
    // One of the two has merged with another neighbour since this candidate was queued.
    if (left.length == 0 || right.length == 0 || left.length + right.length != top.length) continue;
    left.length = top.length;
    right.length = 0;
    left.next = right.next;
    if (right.next >= 0) at(right.next).previous = top.left;
    consider(left.previous, top.left);
    consider(top.left, left.next);
  }
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = at(i).next)
    emit(word.substr(at(i).begin, at(i).length), ids);
}

}  // namespace evalrun::engine
