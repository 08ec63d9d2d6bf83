#include "engine/cpu/attention_plan.h"

#include <limits>

namespace evalrun::engine::cpu {

void AttentionPlan::build(const ForwardPlan& plan, int group, int kv_heads, int threads) {
  plan_ = &plan;
  group_ = group, kv_heads_ = kv_heads;
  int longest = 0;
  bool any_prefix = false;
  for (const PlanRow& r : plan.rows()) {
    longest = std::max(longest, r.context + r.visible_count);
    any_prefix = any_prefix || r.prefix;
  }
  n_chunks_ = (longest + kChunk - 1) / kChunk;
  find_rows_seen();
  find_blocks();
  const int work = static_cast<int>(blocks_.size()) * kv_heads;
  few_blocks_ = threads > 1 && !any_prefix && work < 4 * threads;
  find_bundles(threads);
}

AttentionPlan::Unit AttentionPlan::unit(int u) const {
  const Bundle& bundle = bundles_[static_cast<size_t>(u / units_per_bundle())];
  const int rest = u % units_per_bundle();
  return {bundle.first, bundle.end, rest % kv_heads_, split() ? rest / kv_heads_ : -1};
}

AttentionPlan::Block AttentionPlan::block_of_row(int i) const {
  const PlanRow& r = row(i);
  return {i, i + 1, r.sequence, r.visible_count, r.prefix};
}

AttentionPlan::RowRange AttentionPlan::rows_seen(const Block& block, int chunk) const {
  const int slot = chunk - row(block.first).context / kChunk;
  RowRange all{std::numeric_limits<int>::max(), -1};
  for (int i = block.first; i < block.end; ++i) {
    const RowRange& one = seen_[static_cast<size_t>(i) * seen_chunks_ + static_cast<size_t>(slot)];
    all = {std::min(all.oldest, one.oldest), std::max(all.newest, one.newest)};
  }
  return all;
}

void AttentionPlan::find_rows_seen() {
  const int rows = plan_->n_rows();
  int most = 0;
  for (const PlanRow& r : plan_->rows()) most = std::max(most, r.visible_count);
  seen_chunks_ = static_cast<size_t>(most / kChunk) + 2;  // a list may begin anywhere in a chunk
  seen_.assign(static_cast<size_t>(rows) * seen_chunks_, {std::numeric_limits<int>::max(), -1});
  for (int i = 0; i < rows; ++i) {
    const PlanRow& r = row(i);
    RowRange* seen = seen_.data() + static_cast<size_t>(i) * seen_chunks_;
    int known = 0;
    // The list of a chain's row goes on from that of the row before.
    if (i > 0 && row(i - 1).visible_begin == r.visible_begin &&
        row(i - 1).visible_count <= r.visible_count) {
      std::copy(seen - seen_chunks_, seen, seen);
      known = row(i - 1).visible_count;
    }
    const auto visible = plan_->visible(r);
    for (int j = known; j < r.visible_count; ++j) {
      RowRange& range = seen[(r.context + j) / kChunk - r.context / kChunk];
      const int32_t other = visible[static_cast<size_t>(j)];
      range = {std::min(range.oldest, other), std::max(range.newest, other)};
    }
  }
}

void AttentionPlan::find_blocks() {
  const int most_rows = std::max(1, kBlockQueries / group_);
  blocks_.clear();
  for (int i = 0; i < plan_->n_rows(); ++i) {
    const PlanRow& r = row(i);
    if (blocks_.empty() || blocks_.back().sequence != r.sequence ||
        blocks_.back().prefix != r.prefix || i - blocks_.back().first == most_rows) {
      blocks_.push_back(block_of_row(i));
    } else {
      Block& b = blocks_.back();
      b.end = i + 1;
      b.shared = common(row(b.first), r, b.shared);
    }
  }
}

// From the last rows to the first, since in a chain those see the most. Bundles are large while
// much is left and single blocks in the end, so that threads finish at nearly the same time.
void AttentionPlan::find_bundles(int threads) {
  bundles_.clear();
  const int least = (split() ? 8 : 4) * threads;  // units for a bundle to take several blocks
  for (int end = static_cast<int>(blocks_.size()); end > 0;) {
    const int most = std::clamp(end * units_per_bundle() / least, 1, kMostBlocks);
    int first = end - 1;
    while (first > 0 && end - first < most &&
           blocks_[static_cast<size_t>(first - 1)].sequence ==
               blocks_[static_cast<size_t>(first)].sequence)
      --first;
    bundles_.push_back({first, end});
    end = first;
  }
}

int AttentionPlan::common(const PlanRow& a, const PlanRow& b, int most) const {
  most = std::min(most, b.visible_count);
  if (a.visible_begin == b.visible_begin) return most;
  const auto of_a = plan_->visible(a).first(static_cast<size_t>(most));
  const auto of_b = plan_->visible(b);
  return static_cast<int>(std::mismatch(of_a.begin(), of_a.end(), of_b.begin()).first -
                          of_a.begin());
}

}  // namespace evalrun::engine::cpu
