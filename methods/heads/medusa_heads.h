// The heads of Medusa: h <- h + SiLU(W h + b), some times over, then an output matrix, a head for
// each depth (Cai et al. 2024, section 2.1.1).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/base/function_ref.h"
#include "engine/row_program.h"
#include "engine/session.h"
#include "methods/heads/adapter.h"

namespace evalrun::methods {

class MedusaHeads {
 public:
  // Reads all heads the file has and finishes the reader.
  MedusaHeads(AdapterReader& adapter, const engine::Model& target, engine::WeightStorage storage);

  int n_heads() const { return static_cast<int>(heads_.size()); }
  const std::vector<int32_t>& ids() const { return ids_; }  // empty = the target's
  size_t bytes() const { return bytes_; }  // without what is shared with the target
  // What a look reads, as a share of what a forward of the target reads.
  double relative_cost() const { return relative_cost_; }

  // The first `n` heads at one final hidden state, over the draft ids: the `n_best` likeliest, 0 =
  // logits.
  using See = base::FunctionRef<void(int head, const engine::RowScores& scores)>;
  void look(engine::Session& session, std::span<const float> hidden, int n, int n_best, See see);
  // The same, drawn where the distributions are kept: what `ask` wants of each head.
  void draw(engine::Session& session, std::span<const float> hidden, int n,
            engine::DistributionStore* dists, const engine::SamplingParams& sampling,
            base::FunctionRef<engine::DistributionDraw(int head)> ask, See see);

 private:
  struct Head {
    std::vector<engine::WeightMatrix> w;  // [block]
    std::vector<engine::SharedVector> b;
  };
  void read_head(AdapterReader& adapter, engine::WeightStorage storage);
  // What the first `n` heads hand to their output matrices.
  engine::InputView compute(engine::Session& session, std::span<const float> hidden, int n);
  bool tied() const { return outputs_.size() == 1; }
  engine::Heads outputs(int n) const;

  int d_ = 0;
  std::vector<Head> heads_;
  std::vector<std::shared_ptr<const engine::WeightMatrix>> outputs_;  // one when tied
  std::vector<int32_t> ids_;
  size_t bytes_ = 0;
  double relative_cost_ = 0;
  std::vector<const engine::WeightMatrix*> output_list_;  // the same
  engine::RowProgram program_;
  std::vector<engine::DistributionDraw> draws_;
};

}  // namespace evalrun::methods
