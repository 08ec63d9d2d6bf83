// The heads of Medusa: h <- h + SiLU(W h + b), some times over, then an output matrix, a head for
// each depth (Cai et al. 2024, section 2.1.1). The slots of a batch share them and look at once.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/row_program.h"
#include "engine/session.h"
#include "methods/heads/adapter.h"
#include "methods/heads/drawn_rows.h"
#include "methods/method.h"

namespace evalrun::methods {

class MedusaHeads final : public DraftGroup {
 public:
  // Reads all heads the file has and finishes the reader.
  MedusaHeads(AdapterReader& adapter, const engine::Model& target, engine::WeightStorage storage);

  int n_heads() const { return static_cast<int>(heads_.size()); }
  const std::vector<int32_t>& ids() const { return ids_; }  // empty = the target's
  size_t bytes() const { return bytes_; }  // without what is shared with the target
  // What a look reads, as a share of what a forward of the target reads.
  double relative_cost() const { return relative_cost_; }

  // What is looked at from now on, over the draft ids: the `best` likeliest tokens, or with 0, the
  // default, logits.
  void want_best(int best) { best_ = best; }
  // Or draws, where distributions are kept (not null). Outlives every run.
  void want_draws(engine::DistributionStore* dists, const engine::SamplingParams& sampling) {
    dists_ = dists, sampling_ = &sampling;
  }

  // ---- One look: begin, add states, run, read scores. ----
  int room() const override { return engine::kMaxRows / n_heads(); }
  void begin() override { n_places_ = 0; }
  // The first `n` heads at a final hidden state, which is copied. Returns its place. Products are
  // the session's, the same for all places.
  int add(engine::Session& session, std::span<const float> hidden, int n);
  void ask(int place, int head, const engine::DistributionDraw& draw);  // with want_draws
  void run() override;
  // Valid until the session computes something else.
  engine::RowScores scores(int place, int head) const;

 private:
  struct Head {
    std::vector<engine::WeightMatrix> w;  // [block]
    std::vector<engine::SharedVector> b;
  };
  void read_head(AdapterReader& adapter, engine::WeightStorage storage);
  // What the first `n` heads hand to their output matrices; head after head, for all places.
  engine::InputView compute(int n);
  bool tied() const { return outputs_.size() == 1; }
  engine::Heads outputs(int n);
  void draw(int n, engine::InputView rows);

  int d_ = 0;
  std::vector<Head> heads_;
  std::vector<std::shared_ptr<const engine::WeightMatrix>> outputs_;  // one when tied
  std::vector<int32_t> ids_;
  size_t bytes_ = 0;
  double relative_cost_ = 0;
  struct Place {
    int heads = 0;
    std::vector<engine::DistributionDraw> asked;  // [head]
  };
  int best_ = 0;
  engine::DistributionStore* dists_ = nullptr;
  const engine::SamplingParams* sampling_ = nullptr;
  engine::Session* session_ = nullptr;
  // Of the current look.
  std::vector<Place> places_;  // the first n_places_ of them
  int n_places_ = 0;
  std::vector<float> states_;                             // [place][d]
  std::vector<const engine::WeightMatrix*> output_list_;  // [row]
  engine::RowProgram program_;
  std::vector<engine::DistributionDraw> draws_;
  engine::Scores scores_;
  DrawnRows drawn_;
};

}  // namespace evalrun::methods
