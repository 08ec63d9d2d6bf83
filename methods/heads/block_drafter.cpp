#include "methods/heads/block_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

constexpr int kBlockChunk = 256;  // pairs of one forward

}  // namespace

BlockDrafter::BlockDrafter(std::shared_ptr<DraftNetwork> network, int k, bool right_aligned,
                           int slot)
    : network_(std::move(network)), k_(k), right_aligned_(right_aligned), slot_(slot) {
  EVALRUN_CHECK(slot < network_->slots(), "slot {}, built for {}", slot, network_->slots());
  root_features_.resize(static_cast<size_t>(k_));
}

void BlockDrafter::start(const GenerationContext& context) {
  target_ = context.target;
  sequence_ = context.sequence;
  network_->rewind(0, slot_);
  const Feed feed{0, static_cast<int>(context.prompt.size()) - 1, 0};
  const int begin = feed_alone(context.prompt, feed);
  if (begin == feed.last) return;
  network_->begin();
  add_pairs(context.prompt, feed, begin, feed.last, nullptr);
  network_->run();
}

bool BlockDrafter::begins_block(const Feed& feed, int pair) const {
  return (pair - (right_aligned_ ? feed.last : feed.first)) % k_ == 0;
}

int BlockDrafter::chunk_end(const Feed& feed, int begin) const {
  int end = std::min(feed.last, begin + kBlockChunk);
  if (end < feed.last)
    while (!begins_block(feed, end)) --end;
  return end;
}

int BlockDrafter::feed_alone(std::span<const int32_t> text, const Feed& feed) {
  int begin = feed.first;
  for (int end = chunk_end(feed, begin); end < feed.last; end = chunk_end(feed, begin)) {
    network_->begin();
    add_pairs(text, feed, begin, end, nullptr);
    network_->run();
    begin = end;
  }
  return begin;
}

void BlockDrafter::add_pairs(std::span<const int32_t> text, const Feed& feed, int begin, int end,
                             RankedChoices* choices) {
  const auto hidden = target_->hidden_features(sequence_);
  const int first_read = feed.last - feed.read;
  int block = -1, parent = -1, row = -1;
  for (int t = begin; t < end; ++t) {
    if (t == begin || begins_block(feed, t)) {
      ++block;
      parent = row;
    }
    DraftNetwork::Row r;
    r.slot = slot_;
    r.token = text[static_cast<size_t>(t) + 1];
    r.feature = hidden.row(t);
    r.parent = parent;
    r.block = block;
    r.previous = row;
    r.keep = true;
    r.read = t >= first_read;
    if (r.read && choices != nullptr && choices->keeps()) r.draw = choices->ask(t - first_read, 0);
    row = network_->add(r);
    if (t == first_read) root_row_ = row;
  }
}

bool BlockDrafter::begin_root(std::span<const int32_t> text) {
  const int pairs = static_cast<int>(text.size()) - 1;
  if (pairs < k_) return false;
  root_ = {std::min(network_->length(slot_), pairs - k_), pairs, k_};
  network_->rewind(root_.first, slot_);
  begin_ = feed_alone(text, root_);
  return true;
}

void BlockDrafter::stage_root(std::span<const int32_t> text, RankedChoices* choices) {
  add_pairs(text, root_, begin_, root_.last, choices);
}

void BlockDrafter::take_root() {
  for (int s = 0; s < k_; ++s) {
    const auto f = network_->feature(root_row_ + s);
    root_features_[static_cast<size_t>(s)].assign(f.begin(), f.end());
  }
}

int BlockDrafter::add_block(std::span<const int32_t> tokens, int parent_block, int number,
                            RankedChoices* choices, int first_list) {
  int first_row = -1;
  for (int s = 0; s < k_; ++s) {
    DraftNetwork::Row r;
    r.slot = slot_;
    r.token = tokens[static_cast<size_t>(s)];
    r.feature = parent_block < 0 ? std::span<const float>(root_features_[static_cast<size_t>(s)])
                                 : network_->feature(parent_block + s);
    r.predicted = true;
    r.parent = parent_block < 0 ? -1 : parent_block + k_ - 1;
    r.block = number;
    r.read = true;
    if (choices != nullptr && choices->keeps()) r.draw = choices->ask(first_list + s, 0);
    r.previous = s > 0 ? first_row + s - 1 : r.parent;
    const int row = network_->add(r);
    if (s == 0) first_row = row;
  }
  return first_row;
}

}  // namespace evalrun::methods
