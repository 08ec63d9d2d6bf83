// Drafters for tests: scripted, oracle with known acceptance, random trees.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/rng.h"
#include "methods/method.h"

namespace evalrun::tests {

// Drafts what a function says.
class ScriptedDrafter final : public methods::Drafter {
 public:
  using Script = std::function<void(std::span<const int32_t>, int, methods::TokenTree&)>;
  explicit ScriptedDrafter(Script script) : script_(std::move(script)) {}
  std::unique_ptr<methods::Drafter> another(int) const override {
    return std::make_unique<ScriptedDrafter>(script_);
  }
  void start(const methods::GenerationContext&) override {}
  void draft(std::span<const int32_t> sequence, int max_depth, methods::TokenTree& tree) override {
    script_(sequence, max_depth, tree);
  }

 private:
  Script script_;
};

// Knows the text to come; each drafted token is right with probability alpha, independently.
class OracleDrafter final : public methods::Drafter {
 public:
  // `text` = prompt and reference continuation.
  OracleDrafter(std::vector<int32_t> text, int k, double alpha, int vocab, uint64_t seed)
      : text_(std::move(text)), k_(k), alpha_(alpha), vocab_(vocab), rng_(seed) {}
  void start(const methods::GenerationContext&) override {}
  void draft(std::span<const int32_t> sequence, int max_depth, methods::TokenTree& tree) override {
    int node = 0;
    for (int i = 0; i < std::min(k_, max_depth); ++i) {
      const size_t at = sequence.size() + static_cast<size_t>(i);
      if (at >= text_.size()) return;
      const bool right = rng_.uniform() < alpha_;
      node = tree.add(right ? text_[at] : (text_[at] + 1) % vocab_, node);
    }
  }

 private:
  std::vector<int32_t> text_;
  int k_;
  double alpha_;
  int vocab_;
  base::Rng rng_;
};

// Trees of random shape with random tokens, some repeated among siblings; deterministic in the
// sequence, so that sample and match applies.
class RandomTreeDrafter final : public methods::Drafter {
 public:
  RandomTreeDrafter(int nodes, int vocab, uint64_t seed)
      : nodes_(nodes), vocab_(vocab), seed_(seed) {}
  std::unique_ptr<methods::Drafter> another(int) const override {
    return std::make_unique<RandomTreeDrafter>(nodes_, vocab_, seed_);
  }
  void start(const methods::GenerationContext&) override {}
  void draft(std::span<const int32_t> sequence, int max_depth, methods::TokenTree& tree) override {
    base::Rng rng(base::combine_seeds(
        {seed_, sequence.size(), static_cast<uint64_t>(static_cast<uint32_t>(sequence.back()))}));
    for (int i = 0; i < nodes_; ++i) {
      const int parent = static_cast<int>(rng.below(static_cast<uint64_t>(tree.size())));
      if (tree.level[static_cast<size_t>(parent)] >= max_depth) continue;
      tree.add(static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_))), parent);
    }
  }

 private:
  int nodes_, vocab_;
  uint64_t seed_;
};

}  // namespace evalrun::tests
