#include "methods/heads/pair_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

constexpr int kPairChunk = 256;  // pairs of one forward

}  // namespace

PairDrafter::PairDrafter(std::shared_ptr<DraftNetwork> network, std::vector<int> layers,
                         int step_pairs, int slot)
    : network_(std::move(network)),
      slot_(slot),
      layers_(std::move(layers)),
      step_pairs_(step_pairs) {
  EVALRUN_CHECK(slot < network_->slots(), "slot {}, built for {}", slot, network_->slots());
  feature_.resize(static_cast<size_t>(network_->feature_width()));
}

engine::FeatureSet PairDrafter::needs() const {
  engine::FeatureSet set;
  set.hidden = layers_.empty();
  set.residual_layers = layers_;
  return set;
}

void PairDrafter::start(const GenerationContext& context) {
  target_ = context.target;
  sequence_ = context.sequence;
  network_->rewind(0, slot_);
  // The last pair waits for the first draft: its token is the root.
  feed_alone(context.prompt, static_cast<int>(context.prompt.size()) - 1);
}

void PairDrafter::feed_alone(std::span<const int32_t> text, int pairs) {
  while (network_->length(slot_) < pairs) {
    network_->begin();
    add_pairs(text, std::min(pairs, network_->length(slot_) + kPairChunk), false, nullptr);
    network_->run();
  }
}

void PairDrafter::catch_up(std::span<const int32_t> text) {
  feed_alone(text, static_cast<int>(text.size()) - 1 - step_pairs_);
}

int PairDrafter::stage_pairs(std::span<const int32_t> text, RankedChoices* choices) {
  const int pairs = static_cast<int>(text.size()) - 1;
  EVALRUN_CHECK(network_->length(slot_) < pairs, "the drafter is ahead of the text");
  return add_pairs(text, pairs, true, choices);
}

int PairDrafter::add_pairs(std::span<const int32_t> text, int pairs, bool read,
                           RankedChoices* choices) {
  int row = -1;
  for (int t = network_->length(slot_); t < pairs; ++t) {
    DraftNetwork::Row r;
    r.slot = slot_;
    r.token = text[static_cast<size_t>(t) + 1];
    r.feature = true_feature(t);
    r.parent = row;
    r.keep = true;
    r.read = read && t + 1 == pairs;
    if (r.read && choices != nullptr && choices->keeps()) r.draw = choices->ask(0, 0);
    row = network_->add(r);
  }
  return row;
}

std::span<const float> PairDrafter::true_feature(int position) {
  if (layers_.empty()) return target_->hidden_features(sequence_).row(position);
  size_t at = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto part = target_->residual_features(static_cast<int>(i), sequence_).row(position);
    std::copy(part.begin(), part.end(), feature_.begin() + static_cast<ptrdiff_t>(at));
    at += part.size();
  }
  return feature_;
}

}  // namespace evalrun::methods
