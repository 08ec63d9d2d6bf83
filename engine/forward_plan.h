// A forward request resolved against the sequences: every row's position, the rows it sees and
// where its outputs go. Host code shared by all devices.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/config.h"
#include "engine/rows.h"

namespace evalrun::engine {

// Throws InternalError for a request that does not fit a model of this configuration, whatever the
// sequences hold.
void check_request(const ForwardRequest& request, const ModelConfig& config);
// The same for draws of `rows` rows from `outputs` logits each.
void check_draws(std::span<const DistributionDraw> draws, const DistributionStore* dists,
                 int outputs, int rows);

struct PlanRow {
  int32_t token = -1, embedding = -1;
  int32_t position = 0;
  int32_t sequence = 0;
  int32_t context = 0;  // committed tokens of its sequence; all are visible (up to a window)
  int32_t visible_begin =
      0;  // rows of the request it sees, itself included: visible[begin, begin+count)
  int32_t visible_count = 0;  //   in logical order; entry j stands at logical index context + j
  bool prefix = false, low_rank = false;
  bool in_block = false;
};

// Tokens to be committed after the first `length` of a sequence.
struct PrefillPart {
  std::span<const int32_t> tokens;
  int sequence = 0;
  int length = 0;
};

// A row of the last forward that becomes this position of its sequence.
struct CommitRow {
  int32_t row = 0;
  int32_t sequence = 0;
  int32_t position = 0;
};

class ForwardPlan {
 public:
  // Throws InternalError for malformed trees and usage_error when a position is >= max_tokens.
  // `lengths[s]` = committed tokens of sequence s. `answers`: the device finds the best of a row
  // and draws itself; otherwise rows that want these want logits. Reuses its memory: allocates
  // nothing in steady state.
  void build(const ForwardRequest& request, std::span<const int> lengths, int max_tokens,
             const ModelConfig& config, bool answers = false);
  // Chains of committed tokens, each of another sequence, with all hidden states or none.
  // `kv_only`: nothing after the last layer's keys and values is wanted.
  void build_prefill(std::span<const PrefillPart> parts, bool hidden, bool kv_only);

  // To be computed; their numbers count on from those that stay (ForwardRequest::extend), and so do
  // those in `visible`.
  std::span<const PlanRow> rows() const {
    return std::span<const PlanRow>(all_rows_).subspan(static_cast<size_t>(n_kept_));
  }
  int n_rows() const { return static_cast<int>(all_rows_.size()) - n_kept_; }
  int n_kept() const { return n_kept_; }
  std::span<const PlanRow> all_rows() const { return all_rows_; }
  std::span<const int32_t> visible(const PlanRow& row) const {
    return {visible_.data() + row.visible_begin, static_cast<size_t>(row.visible_count)};
  }
  std::span<const int32_t> logit_rows() const {
    return logit_rows_;
  }  // new rows that want logits, in order, counted from the first new one; so are those below
  std::span<const int32_t> hidden_rows() const { return hidden_rows_; }
  // Rows that have no logits and want their top token, their best or a draw.
  std::span<const int32_t> answer_rows() const { return answer_rows_; }
  std::span<const int32_t> logits_of() const { return logits_of_; }  // row -> slot or -1
  std::span<const int32_t> hidden_of() const { return hidden_of_; }
  bool kv_only() const { return kv_only_; }
  // Chains of committed tokens (build_prefill): a backend may write their keys and values where
  // commit() would.
  bool prefill() const { return prefill_; }
  std::span<const int32_t> visible_rows() const { return visible_; }  // the lists of all rows

 private:
  void append_visible(PlanRow& row, const PlanRow* parent, int first_member, int n_members);

  std::vector<PlanRow> all_rows_;
  int n_kept_ = 0;
  std::vector<int32_t> visible_, logit_rows_, hidden_rows_, answer_rows_, logits_of_, hidden_of_;
  bool kv_only_ = false, prefill_ = false;
};

}  // namespace evalrun::engine
