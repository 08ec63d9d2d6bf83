#include "methods/lookup/carried_text.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {

CarriedText::CarriedText(int counted, size_t capacity)
    : half_(capacity / 2), parts_{{SuffixAutomaton(counted), SuffixAutomaton(counted)}} {
  EVALRUN_CHECK(half_ >= 2);
}

void CarriedText::add(std::span<const int32_t> text) {
  if (text.empty()) return;
  text = text.last(std::min(text.size(), half_ - 1));
  const size_t needed = text.size() + 1;  // and the separator
  if (part(newest_).tokens() + needed > half_) {
    newest_ = 1 - newest_;
    parts_[static_cast<size_t>(newest_)].clear();
    room_[static_cast<size_t>(newest_)] = 0;
    ++drops_;
  }
  make_room(needed);
  SuffixAutomaton& newest = parts_[static_cast<size_t>(newest_)];
  for (const int32_t token : text) newest.add(token);
  newest.end_text();
}

// By doubling, up to a half: what an answer costs does not grow with what is kept.
void CarriedText::make_room(size_t tokens) {
  const auto newest = static_cast<size_t>(newest_);
  const size_t held = parts_[newest].tokens();
  if (held + tokens <= room_[newest]) return;
  room_[newest] = std::min(half_, std::max(held + tokens, 2 * held));
  parts_[newest].reserve(room_[newest] - held);
  ++growths_;
}

EarlierAnswers::EarlierAnswers(CarriedState state, int counted, int capacity, int longest)
    : state_(state), counted_(counted), capacity_(capacity), longest_(longest) {
  if (state_ != CarriedState::kCold)
    store_ = std::make_shared<CarriedText>(counted, static_cast<size_t>(capacity));
}

EarlierAnswers EarlierAnswers::another() const {
  EarlierAnswers other(state_, counted_, capacity_, longest_);
  other.store_ = store_of_slot(state_, store_, [&] { return other.store_; });
  return other;
}

void EarlierAnswers::add_kept(GrownMemory& grown) const {
  if (store_ == nullptr) return;
  (state_ == CarriedState::kShared ? grown.shared : grown.per_slot) +=
      SuffixAutomaton::most_bytes(capacity_);
  grown.per_token += sizeof(int32_t);  // answer_
}

void EarlierAnswers::start(std::span<const int32_t> prompt, int max_new) {
  if (store_ == nullptr) return;
  store_->add(answer_);
  answer_.clear();
  answer_.reserve(static_cast<size_t>(std::max(max_new, 0)) + 1);
  matches_ = {};
  read_ = prompt.size() - std::min(prompt.size(), kReadAnew);
  drops_ = store_->drops();
  for (; read_ < prompt.size(); ++read_)
    for (int i = 0; i < parts(); ++i)
      matches_[static_cast<size_t>(i)] = part(i).follow(match(i), prompt[read_], longest_);
}

void EarlierAnswers::follow(std::span<const int32_t> sequence) {
  if (store_ == nullptr) return;
  const auto fresh = sequence.subspan(read_);
  answer_.insert(answer_.end(), fresh.begin(), fresh.end());
  if (drops_ != store_->drops()) {  // another slot's answer went in
    drops_ = store_->drops();
    matches_ = {};
    read_ = sequence.size() - std::min(sequence.size(), kReadAnew);
  }
  for (; read_ < sequence.size(); ++read_)
    for (int i = 0; i < parts(); ++i)
      matches_[static_cast<size_t>(i)] = part(i).follow(match(i), sequence[read_], longest_);
}

}  // namespace evalrun::methods
