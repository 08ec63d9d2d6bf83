// Drafts that are drawn: the distributions they came from, which stay where the logits are, and the
// test of such drafts there (engine/rejection.h).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "engine/sampling.h"

namespace evalrun::engine {

// Distributions that drafts were drawn from, kept where the target's logits will be, so that
// neither crosses the bus (Session::make_distributions).
class DistributionStore {
 public:
  virtual ~DistributionStore() = default;
  int slots() const { return slots_; }
  int vocab() const { return vocab_; }  // target ids 0..vocab-1
  // Of the drafter's outputs, how many a row that is kept must have; 0 = they are the target's ids.
  int n_ids() const { return n_ids_; }
  const std::string& device() const { return device_; }  // as in SessionOptions

 protected:
  DistributionStore(std::string device, int slots, int vocab, std::span<const int32_t> ids)
      : device_(std::move(device)),
        slots_(slots),
        vocab_(vocab),
        n_ids_(static_cast<int>(ids.size())) {}

 private:
  const std::string device_;
  const int slots_, vocab_, n_ids_;
};

// Draws a row's tokens (target ids), one by each uniform, none twice, and keeps the distribution
// they came from in a slot.
struct DistributionDraw {
  int32_t row = 0, slot = 0;
  std::span<const double> uniforms =
      {};  // in [0, 1), 1..kMostBest (engine/rows.h); the first is Row::uniform, too
};
// Draws from logits that no forward computes (Session::draw).
struct DistributionDraws {
  const SamplingParams* sampling = nullptr;
  DistributionStore* dists = nullptr;
  std::span<const DistributionDraw> rows = {};  // in order of rows
};
// Tries children of a row that were drawn from a kept distribution, in the order of the draws: at
// most one passes, otherwise a token of the target's own comes (engine/rejection.h).
struct RejectionTest {
  int32_t row = 0, slot = 0;
  std::span<const int32_t> children = {};
};

}  // namespace evalrun::engine
