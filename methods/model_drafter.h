// Drafts a chain with a second, smaller model that has its own session (KV cache with rollback).
// Greedy decoding takes the draft model's argmax; sampling draws from its warped distribution and
// keeps the row, so that the verifier can apply rule S.
//
// Vocabularies: ids mean the same in both models, but the widths of the logits may differ by
// padding. Draft logits are cut to the common width before the softmax; the target's stay whole, so
// that its law is that of the target alone. A token the draft model has no embedding for ends
// drafting for the rest of the generation, and so does a draft context that is full.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "methods/method.h"

namespace evalrun::methods {

class ModelDrafter final : public Drafter {
 public:
  struct Sizes {
    int gamma = 4;             // draft length
    int draft_vocab = 0;       // ids the draft model knows
    int common_vocab = 0;      // width of both models' logits that is compared
    size_t extra_weights = 0;  // bytes the draft model adds to the target's
  };
  ModelDrafter(std::unique_ptr<engine::Session> session, const Sizes& sizes);

  void start(const GenerationContext& context) override;
  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override;
  std::span<const double> q_of(int node) const override;
  void accepted(std::span<const int> path, int32_t bonus) override;
  size_t extra_parameter_bytes() const override { return sizes_.extra_weights; }
  size_t extra_kv_bytes() const override { return session_->kv_bytes(); }

 private:
  // Commits the tokens; returns the token drafted behind the last of them.
  int32_t feed(std::span<const int32_t> tokens, int level);
  int32_t choose(std::span<const float> logits, int level);
  // Whether the draft model's own top token is the draft: greedy, and none of its ids is cut.
  bool by_top() const { return sampling_.greedy() && sizes_.common_vocab == sizes_.draft_vocab; }
  bool known(int32_t token) const { return token >= 0 && token < sizes_.draft_vocab; }

  std::unique_ptr<engine::Session> session_;
  Sizes sizes_;
  engine::SamplingParams sampling_;
  base::Rng* rng_ = nullptr;
  bool able_ = true;                    // every token so far is known to the draft model
  int root_ = 0;                        // position of the root of the last draft
  std::vector<std::vector<double>> q_;  // [gamma], rows of this step's draft
  engine::WarpScratch scratch_;
  std::vector<engine::Row> rows_;
  std::vector<int> path_;
};

}  // namespace evalrun::methods
