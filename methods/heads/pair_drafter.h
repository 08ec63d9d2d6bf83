// What EAGLE's drafters share, which predict one token a forward: the pairs of the text.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "methods/heads/draft_network.h"
#include "methods/heads/static_draft.h"
#include "methods/method.h"

namespace evalrun::methods {

class PairDrafter : public Drafter {
 public:
  // `layers`: whose input streams are the features; empty = the final hidden state. `step_pairs`:
  // that a step adds to the text at most.
  PairDrafter(std::shared_ptr<DraftNetwork> network, std::vector<int> layers, int step_pairs,
              int slot);

  engine::FeatureSet needs() const override;
  void start(const GenerationContext& context) override;
  DraftGroup* group() override { return network_.get(); }
  bool must_catch_up() const override { return true; }  // pairs of the text
  size_t extra_parameter_bytes() const override { return network_->weight_bytes(); }
  size_t extra_kv_bytes() const override { return network_->kv_bytes(); }
  void add_kept(KeptMemory& kept) const override { network_->add_kept(kept); }

 protected:
  // Before anything is staged: commits what of the text's new pairs is more than a step's.
  void catch_up(std::span<const int32_t> text);
  // The text's new pairs go into the next forward. Returns the row of the last one, which is read,
  // or drawn from by list 0 of `choices`.
  int stage_pairs(std::span<const int32_t> text, RankedChoices* choices);
  const std::vector<int>& layers() const { return layers_; }

  const std::shared_ptr<DraftNetwork> network_;
  const int slot_;

 private:
  // Commits pairs up to `pairs`, by forwards of this slot alone.
  void feed_alone(std::span<const int32_t> text, int pairs);
  int add_pairs(std::span<const int32_t> text, int pairs, bool read, RankedChoices* choices);
  std::span<const float> true_feature(int position);

  const std::vector<int> layers_;
  const int step_pairs_;
  engine::Session* target_ = nullptr;
  int sequence_ = 0;  // of the target
  std::vector<float> feature_;
};

}  // namespace evalrun::methods
