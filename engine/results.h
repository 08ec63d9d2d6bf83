// What a forward answers: logits, scores, states, draws, and where its time went.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/rows.h"
#include "engine/sampling.h"

namespace evalrun::engine {

// What is known of one row's logits: all of them, or the best, the largest first (ties: the smaller
// index), fewer where the vocabulary has fewer, and log_sum() of all where that was asked for.
struct RowScores {
  std::span<const float> logits;
  std::span<const TokenLogit> best;
  double log_sum = 0;
  std::span<const int32_t> drawn = {};  // tokens of its DistributionDraw
};

// The same of several rows.
struct Scores {
  MatrixView logits;                 // [rows, vocab], or nothing
  std::span<const TokenLogit> best;  // [rows, n_best]
  int n_best = 0;
  std::span<const double> log_sums;  // [rows], or nothing
  RowScores row(int i) const;
};

// Brings one row of logits to the host when it is looked at. A tree's verification looks at the few
// nodes on its way; on a GPU all others stay where they were computed.
class LogitSource {
 public:
  virtual void fetch(int slot) = 0;  // into row `slot` of ForwardResult::logits

 protected:
  ~LogitSource() = default;
};

// Views into the session's workspace; valid until its next forward, prefill, head, multiply or
// score call. logits_of[i] / hidden_of[i] is the row number inside `logits` / `hidden`, -1 when not
// asked for.
struct ForwardResult {
  MatrixView logits;                     // [rows that asked, vocab]; read by logits_row()
  LogitSource* source = nullptr;         // not null: rows of `logits` are filled once it was asked
  MatrixView hidden;                     // [rows that asked, d_model]
  std::span<const MatrixView> residual;  // one per residual_layers entry, [rows, d_model]
  std::span<const int32_t> logits_of, hidden_of;
  std::span<const int32_t> top, drawn;  // [rows], -1 for rows that did not ask
  // [rows], of those with a RejectionTest the child that passed (its token is `drawn`), -1 = none.
  std::span<const int32_t> passed;
  std::span<const int32_t>
      drawn_tokens;  // of all DistributionDraws in turn; -1 where nothing was left
  // [rows], of those with a DistributionDraw: what the drawn token's probability is, the likeliest
  // one's being 1; -1 for others.
  std::span<const double> weight;
  Scores best;                       // of the rows that asked, in order
  std::span<const int32_t> best_of;  // row -> number inside `best`, -1 when not asked for
  // Logits or best, whichever was asked for.
  RowScores scores(int row) const;
  std::span<const float> logits_row(int row) const {
    const int32_t slot = logits_of[static_cast<size_t>(row)];
    if (source != nullptr) source->fetch(slot);
    return logits.row(slot);
  }
  std::span<const float> hidden_row(int row) const {
    return hidden.row(hidden_of[static_cast<size_t>(row)]);
  }
};

// What a forward answers for its rows `first`, `first` + 1, ..., `n` of them, numbered from 0: a
// view like the whole, valid as long. Of its drawn tokens those from `first_drawn_token` on, which
// belong to these rows. InternalError for a result with residual streams.
ForwardResult slice(const ForwardResult& whole, int first, int n, int first_drawn_token = 0,
                    int n_drawn_tokens = 0);

// Where the time of one forward went, in milliseconds of the calling thread. Only with
// SessionOptions::measure_phases, which costs a clock read per phase.
struct PhaseTimes {
  double weights = 0;    // products with the layers' matrices
  double attention = 0;  // scores, softmax, weighted values
  double norms = 0;      // norms, rounding of inputs, rope, residual adds, embedding
  double head = 0;       // final norm, product with the output matrix, argmax
  double waits = 0;      // at barriers
  double total() const { return weights + attention + norms + head + waits; }
};

}  // namespace evalrun::engine
