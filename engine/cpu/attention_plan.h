// How the attention of a forward is divided, however keys and values are stored.
//
// Neighbouring rows of one sequence all see its whole committed context. A block of them has up to
// 24 query vectors per kv head, which are computed together. A unit of work is one kv head of up to
// four neighbouring blocks: they take turns at each chunk of keys and values (arith.h) while it is
// in the core's own caches. Where such units are too few for the threads, a unit is one chunk of
// them. Which rows are computed together changes no bit: every query has its own sums, in the order
// of its own positions.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "engine/cpu/kernels/arith.h"
#include "engine/forward_plan.h"

namespace evalrun::engine::cpu {

class AttentionPlan {
 public:
  static constexpr int kBlockQueries = 24;  // of a block of several rows
  static constexpr int kMostBlocks = 4;     // of a unit

  struct Block {
    int first, end;  // rows
    int sequence;
    int shared;   // so many rows of the request, the first that each of them sees, are the same
    bool prefix;  // they see the prefix bank
  };
  struct Unit {
    int first, end;  // blocks, of one sequence
    int kv_head;
    int chunk;  // only this one; -1: all of them
  };
  struct RowRange {
    int oldest, newest;
  };

  // `group`: query heads per kv head. Allocates nothing in steady state.
  void build(const ForwardPlan& plan, int group, int kv_heads, int threads);

  int n_chunks() const { return n_chunks_; }  // of the longest view
  // Blocks are so few that units are single chunks once there are several.
  bool few_blocks() const { return few_blocks_; }
  bool split() const { return few_blocks_ && n_chunks_ > 1; }

  // Units of a layer without a window, those that take long first.
  int units() const { return static_cast<int>(bundles_.size()) * units_per_bundle(); }
  Unit unit(int u) const;
  std::span<const Block> blocks() const { return blocks_; }
  // A row by itself, as layers with a window need it.
  Block block_of_row(int i) const;

  // Rows of the request, kept ones too, among which are all that the block's rows see in a chunk;
  // newest < oldest when they see none.
  RowRange rows_seen(const Block& block, int chunk) const;
  // What each query of a block sees of the request's rows at logical positions from `from` to the
  // end of the chunk that begins at `base`: f(first query, queries, position, row, n) for runs of n
  // neighbouring rows, for every query in order of positions.
  template <typename F>
  void for_rows_seen(const Block& block, int from, int base, const F& f) const;

 private:
  struct Bundle {
    int first, end;  // blocks
  };
  const PlanRow& row(int i) const { return plan_->rows()[static_cast<size_t>(i)]; }
  int units_per_bundle() const { return kv_heads_ * (split() ? n_chunks_ : 1); }
  void find_rows_seen();
  void find_blocks();
  void find_bundles(int threads);
  // How many of the first rows that both see are the same, at most `most`.
  int common(const PlanRow& a, const PlanRow& b, int most) const;
  // f(position, row, n) for runs of neighbouring rows at logical positions [begin, end) of a row.
  template <typename F>
  void for_runs(const PlanRow& r, int begin, int end, const F& f) const;

  const ForwardPlan* plan_ = nullptr;
  int group_ = 1, kv_heads_ = 1;
  int n_chunks_ = 0;
  bool few_blocks_ = false;
  std::vector<Block> blocks_;
  std::vector<Bundle> bundles_;
  std::vector<RowRange> seen_;  // [row][chunk, counted from that of the row's first visible row]
  size_t seen_chunks_ = 0;
};

template <typename F>
void AttentionPlan::for_rows_seen(const Block& block, int from, int base, const F& f) const {
  const int context = row(block.first).context, stop = base + kChunk;
  const int begin = std::max(from, context), own = std::max(begin, context + block.shared);
  for_runs(row(block.first), begin, std::min(stop, context + block.shared),
           [&](int position, int seen, int n) {
             f(0, (block.end - block.first) * group_, position, seen, n);
           });
  for (int i = block.first; i < block.end; ++i)
    for_runs(row(i), own, std::min(stop, context + row(i).visible_count),
             [&](int position, int seen, int n) {
               f((i - block.first) * group_, group_, position, seen, n);
             });
}

template <typename F>
void AttentionPlan::for_runs(const PlanRow& r, int begin, int end, const F& f) const {
  const auto visible = plan_->visible(r);
  const auto seen_at = [&](int position) {
    return visible[static_cast<size_t>(position - r.context)];
  };
  for (int p = begin; p < end;) {
    const int seen = seen_at(p);
    int n = 1;
    while (p + n < end && seen_at(p + n) == seen + n) ++n;
    f(p, seen, n);
    p += n;
  }
}

}  // namespace evalrun::engine::cpu
