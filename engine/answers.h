// What the rows of one forward answer besides logits and states: likeliest tokens, draws, the best
// few. Filled by a device, or from logits on the host; read through ForwardResult.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/results.h"
#include "engine/rows.h"

namespace evalrun::engine {

class Answers {
 public:
  // Of `request`, over a vocabulary of `vocab`; nothing is answered yet. Keeps its memory.
  void begin(const ForwardRequest& request, int vocab);
  int n_best() const { return n_best_; }  // of each row that wants its best

  void set_top(int row, int32_t token) { top_[static_cast<size_t>(row)] = token; }
  void set_drawn(int row, int32_t token) { drawn_[static_cast<size_t>(row)] = token; }
  void set_passed(int row, int child) { passed_[static_cast<size_t>(row)] = child; }
  // Of the drawn token, from its mass (engine/sampling_arith.h).
  void set_weight(int row, uint64_t mass);
  void add_drawn_token(int32_t token) { drawn_tokens_.push_back(token); }  // in order of rows
  // In order of rows. `log_sum` is kept where it was asked for.
  void add_best(int row, std::span<const TokenLogit> best, double log_sum);
  // Everything this row asks for, from its logits; in order of rows. Distributions are
  // HostDistributions.
  void answer(const ForwardRequest& request, int row, std::span<const float> logits);

  void publish(ForwardResult& result) const;

 private:
  int n_best_ = 0;
  bool wants_sums_ = false;
  std::vector<int32_t> top_, drawn_, passed_, best_of_;  // [rows]
  std::vector<int32_t> drawn_tokens_;
  std::vector<TokenLogit> best_, row_best_;
  void answer_by_dist(const ForwardRequest& request, int row, std::span<const float> logits);

  std::vector<double> log_sums_, weight_;  // weight: [rows]
  std::vector<uint64_t> mass_;             // of the row at hand
  std::vector<int32_t> tokens_;
  size_t next_draw_ = 0, next_rejection_test_ = 0;  // of the request
  WarpScratch scratch_;
};

// Scores from products on the host: their views, or the best of them found there.
class HostScores {
 public:
  Scores of(MatrixView logits, int n_best);
  std::span<const int32_t> draw(
      MatrixView logits, const DistributionDraws& draws);  // distributions: HostDistributions

 private:
  std::vector<TokenLogit> best_, row_best_;
  std::vector<uint64_t> mass_;
  std::vector<int32_t> tokens_, row_tokens_;
  WarpScratch scratch_;
};

}  // namespace evalrun::engine
