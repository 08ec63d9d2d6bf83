// Masks that are read out after the target's forward: those of all slots by one product with the
// output matrix.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "methods/heads/drawn_rows.h"
#include "methods/method.h"

namespace evalrun::methods {

class MaskHead final : public DraftGroup {
 public:
  // `masks`: rows of a slot.
  MaskHead(std::shared_ptr<const engine::WeightMatrix> head, int masks)
      : head_(std::move(head)), masks_(masks) {}

  // What is wanted from now on: the `best` likeliest outputs, or with 0, the default, logits.
  void want_best(int best) { best_ = best; }
  // Or draws, where distributions are kept (not null). Outlives every run.
  void want_draws(engine::DistributionStore* dists, const engine::SamplingParams& sampling) {
    dists_ = dists, sampling_ = &sampling;
  }

  int room() const override { return engine::kMaxRows / masks_; }
  void begin() override {
    states_.clear();
    draws_.clear();
  }
  // Final hidden states, [n, d_model], which are copied. Returns the first one's row. The product
  // is the session's, the same for all.
  int add(engine::Session& session, std::span<const float> states);
  void ask(const engine::DistributionDraw& draw) { draws_.push_back(draw); }  // in order of rows
  void run() override;
  // Of a row; valid until the session computes something else.
  engine::RowScores scores(int row) const;

 private:
  int rows() const { return static_cast<int>(states_.size()) / head_->in(); }

  const std::shared_ptr<const engine::WeightMatrix> head_;
  const int masks_;
  int best_ = 0;
  engine::DistributionStore* dists_ = nullptr;
  const engine::SamplingParams* sampling_ = nullptr;
  engine::Session* session_ = nullptr;
  std::vector<float> states_;                    // [row][d_model]
  std::vector<engine::DistributionDraw> draws_;  // in order of rows
  DrawnRows drawn_;
  engine::Scores scores_;
};

}  // namespace evalrun::methods
