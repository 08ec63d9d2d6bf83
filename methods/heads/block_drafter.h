// What Falcon's drafters share: the pairs of the text, and blocks of k rows that see each other.
//
// The last k pairs of the text always form the root block (align=right), as in training with a
// random border; the released code starts blocks at the first pair that is new (align=chunk), so
// that the last rows may straddle two. The root block is computed anew in each step: with one layer
// that changes no key or value, with two it replaces what the first layer saw.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "methods/heads/draft_network.h"
#include "methods/heads/static_draft.h"
#include "methods/method.h"

namespace evalrun::methods {

class BlockDrafter : public Drafter {
 public:
  static constexpr int kMostPlaces = 8;  // k at most

  BlockDrafter(std::shared_ptr<DraftNetwork> network, int k, bool right_aligned, int slot);

  engine::FeatureSet needs() const override { return {.hidden = true, .residual_layers = {}}; }
  // Commits the prompt's pairs but the last, whose token is the root.
  void start(const GenerationContext& context) override;
  DraftGroup* group() override { return network_.get(); }
  bool must_catch_up() const override { return true; }  // pairs of the text
  size_t extra_parameter_bytes() const override { return network_->weight_bytes(); }
  size_t extra_kv_bytes() const override { return network_->kv_bytes(); }
  void add_kept(KeptMemory& kept) const override { network_->add_kept(kept); }

 protected:
  // Of a draft whose blocks have `rows` rows and whose levels are at most `depth`.
  void expect(int rows, int depth) { network_->expect(std::max(rows, depth + 1 + 2 * k_)); }
  // Before anything is staged. False where the text has no k pairs yet.
  bool begin_root(std::span<const int32_t> text);
  // The text's new pairs, the root block last, go into the next forward. `choices` are asked for
  // draws of the lists 0..k-1 where they keep distributions.
  void stage_root(std::span<const int32_t> text, RankedChoices* choices);
  void take_root();  // after it: keeps the features
  // Scores of a place of the root block, until the next forward.
  engine::RowScores root_scores(int place) const { return network_->scores(root_row_ + place); }
  // Adds block `number` of this slot's part of a forward: `tokens` with the features that the block
  // in front of it, of rows `parent_block`.. (-1 = the root block), has predicted. Returns its
  // first row. `choices` are asked for draws of the lists `first_list`...
  int add_block(std::span<const int32_t> tokens, int parent_block, int number,
                RankedChoices* choices = nullptr, int first_list = 0);

  const std::shared_ptr<DraftNetwork> network_;
  const int k_;
  const bool right_aligned_;
  const int slot_;

 private:
  // Pairs that are fed for one purpose: `first` to `last`, of which `read` are looked at.
  struct Feed {
    int first = 0, last = 0, read = 0;
  };
  // The end of the forward that begins with pair `begin`. At block borders, so that no block is cut
  // and the root block is in the last one.
  int chunk_end(const Feed& feed, int begin) const;
  bool begins_block(const Feed& feed, int pair) const;
  // Commits whole chunks, by forwards of this slot alone, while one more follows. Returns the first
  // pair of that one.
  int feed_alone(std::span<const int32_t> text, const Feed& feed);
  void add_pairs(std::span<const int32_t> text, const Feed& feed, int begin, int end,
                 RankedChoices* choices);

  engine::Session* target_ = nullptr;
  int sequence_ = 0;                               // of the target
  Feed root_;                                      // of the current draft
  int begin_ = 0;                                  // its first pair that is not committed yet
  int root_row_ = 0;                               // first row of the root block
  std::vector<std::vector<float>> root_features_;  // [k]
};

}  // namespace evalrun::methods
