// A forward up to the stream before the final norm. Inside the layers are phases separated by
// barriers:
//   rows: residual add, norm, rounding | q, k, v | rows: rope, K/V | attention | rows: rounding | o
//   | rows: residual add, norm, rounding | gate, up, silu | rows: rounding | down | ...
// Products are split over output channels, attention over units, row phases over rows, so no sum is
// ever split between threads and results do not depend on their number. Keys alone are split by
// blocks of 16 rows and heads: a cache line of a block has numbers of all its rows, and would
// travel between threads that write to it in turns.
//
// T: how keys and values are stored (engine/cpu/kv_store.h).
#pragma once
#include <atomic>
#include <initializer_list>
#include <vector>

#include "engine/cpu/attention.h"
#include "engine/cpu/forward_threads.h"
#include "engine/cpu/kernels/arith.h"
#include "engine/cpu/kv_memory.h"
#include "engine/cpu/low_rank_rows.h"
#include "engine/cpu/node_weights.h"
#include "engine/cpu/workspace.h"
#include "engine/forward_plan.h"
#include "engine/model/model.h"

namespace evalrun::engine::cpu {

template <typename T>
class Layers {
 public:
  Layers(const NodeWeights& weights, ForwardThreads& threads, Workspace& workspace, KvMemory<T>& kv,
         int max_tokens);

  // Of the forward that run() is about to compute.
  void begin(const ForwardPlan& plan, const ForwardRequest& request);
  // By all threads at once. False when the last layer's keys and values are all that is wanted, and
  // nothing may follow.
  bool run(int thread);
  size_t bytes() const;

 private:
  using Space = Workspace::Space;
  int n() const { return threads_.rows(); }
  const LayerWeights& layer(int thread, int l) const { return weights_.of(thread).layer(l); }
  int group() const { return c_.n_heads / c_.n_kv_heads; }
  Space& space(int thread) { return w_.spaces[threads_.space(thread)]; }
  bool skipped(const std::vector<bool> SkipSet::*set, int l) const;
  bool ends_at(int l) const { return plan_->kv_only() && l == c_.n_layers - 1; }

  void embed(int thread);
  void keep_residual(int thread, int l);
  void attention_block(int thread, int l);
  void attend(int thread, int l);
  void mlp_block(int thread, int l);
  void gate_and_up(int thread, const LayerWeights& w, const InputRows& in, bool with_silu);
  void add_to_stream(int thread, const WeightMatrix& w, const std::vector<float>& bias,
                     const LowRankFactor& delta, Rows& unrounded);

  void enter(Space& s, size_t i, const std::vector<float>& norm, const WeightMatrix& next);
  void rotate_row(int thread, size_t i, int l);
  void write_keys(int thread, int l);
  void write_key_block(int thread, int l, int head, int begin, int end);
  void rotate(const float* heads, int n, const std::vector<float>& norm, int position,
              float* to) const;
  void add_bias(float* y, const std::vector<float>& bias) const;
  void add_low_rank(int thread, std::initializer_list<LowRankRows::Job> jobs, Rows& x);
  const LowRankLayer& delta_of(int l) const;

  const NodeWeights& weights_;
  const ModelConfig& c_;
  const Kernels& kernels_;
  ForwardThreads& threads_;
  Workspace& w_;
  KvMemory<T>& kv_;
  const RopeTable rope_;
  Attention<T> attention_;
  std::vector<LowRankRows> low_rank_;  // [thread]
  std::vector<Rows> keys_;             // [thread] one head of a block's rows, rotated
  std::atomic<int> next_unit_{0};
  const ForwardPlan* plan_ = nullptr;
  const ForwardRequest* request_ = nullptr;
};

}  // namespace evalrun::engine::cpu
