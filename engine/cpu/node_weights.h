// A model's weights for threads on several NUMA nodes. Shares of a product depend on the number of
// threads and on which matrices are multiplied together, so each node has all matrices of a forward
// in its own memory: a second Model, which costs nothing to use. Where there is no room for that,
// pages lie on the nodes in turns: half of all reads are far on two nodes, but all memory takes
// part.
//
// The model's own weights are those of the first thread's node. Copies belong to the model: they
// live as long as it does, whatever sessions come and go, and models that share layers or a head
// share their copies.
//
// EVALRUN_NUMA: auto (default: copies, where they take at most half of each node's free memory,
// else interleave), copy (an error where there is no room), interleave, off.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/cpu/node_memory.h"
#include "engine/cpu/thread_pool.h"
#include "engine/model/model.h"
#include "engine/weight_placement.h"

namespace evalrun::engine::cpu {

class NodeWeights {
 public:
  // For the threads of this pool. Throws usage_error for an unknown EVALRUN_NUMA, data_error when
  // copies were demanded and do not fit.
  NodeWeights(std::shared_ptr<const Model> model, ThreadPool& pool);

  const Model& model() const { return *model_; }
  // The same weights, near a thread.
  const Model& of(int thread) const { return *of_[static_cast<size_t>(thread)]; }
  // A matrix as a thread better reads it: the head has copies, others are where they are.
  const WeightMatrix& near(const WeightMatrix& w, int thread) const {
    return &w == &model_->head() ? of(thread).head() : w;
  }
  const WeightPlacement& placement() const { return placement_; }

  // Makes what all threads will read, such as keys and values: its pages lie on the nodes in turns.
  template <typename Make>
  auto spread(const Make& make) const {
    const PagesInTurns turns(spread_over_);
    return make();
  }

 private:
  enum class Choice { kAuto, kCopy, kInterleave, kOff };
  static Choice chosen();
  // For all but the first of the nodes; false = there is no room for copies that nobody demanded.
  bool copy(std::span<const int> nodes, ThreadPool& pool, bool demanded);
  void place(const Model& model, std::span<const int> nodes);  // moves its pages there

  const std::shared_ptr<const Model> model_;
  const Places places_;
  std::vector<const Model*> of_;  // [thread]
  std::vector<int> spread_over_;  // nodes; empty = nothing is spread
  WeightPlacement placement_;
};

}  // namespace evalrun::engine::cpu
