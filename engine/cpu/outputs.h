// The end of a forward: final norm, output matrix, and what its rows want of that.
#pragma once
#include <atomic>
#include <vector>

#include "engine/answers.h"
#include "engine/cpu/forward_threads.h"
#include "engine/cpu/node_weights.h"
#include "engine/cpu/workspace.h"
#include "engine/forward_plan.h"
#include "engine/model/model.h"
#include "engine/results.h"

namespace evalrun::engine::cpu {

class Outputs {
 public:
  Outputs(const NodeWeights& weights, ForwardThreads& threads, Workspace& workspace);

  // Of the forward that run() is about to end.
  void begin(const ForwardPlan& plan);
  // By all threads at once, after the layers.
  void run(int thread);
  // Once all threads are done.
  void read(ForwardResult& result, Answers& answers);

 private:
  void find_top(int thread, int first, int rows);
  void read_top(Answers& answers) const;

  const NodeWeights& weights_;
  const ModelConfig& c_;
  const Kernels& kernels_;
  ForwardThreads& threads_;
  Workspace& w_;
  std::atomic<int> next_strip_{0};
  const ForwardPlan* plan_ = nullptr;
  std::vector<MatrixView> residual_views_;
};

}  // namespace evalrun::engine::cpu
