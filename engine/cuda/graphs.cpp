#include "engine/cuda/graphs.h"

#include "engine/cuda/check.h"

namespace evalrun::engine::cuda {

cudaGraphExec_t GraphCache::find(const Key& key) {
  const auto it = graphs_.find(key);
  if (it == graphs_.end()) return nullptr;
  order_.splice(order_.begin(), order_, it->second.use);
  return it->second.graph;
}

void GraphCache::begin_capture(cudaStream_t stream) {
  EVALRUN_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}
void GraphCache::abandon_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
}
cudaGraphExec_t GraphCache::end_capture(const Key& key, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  EVALRUN_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t ready = nullptr;
  const cudaError_t e = cudaGraphInstantiate(&ready, graph, 0);
  (void)cudaGraphDestroy(graph);
  EVALRUN_CUDA(e);
  if (graphs_.size() >= kMost) {
    const Key oldest = order_.back();
    (void)cudaGraphExecDestroy(graphs_.at(oldest).graph);
    graphs_.erase(oldest);
    order_.pop_back();
  }
  order_.push_front(key);
  graphs_[key] = {ready, order_.begin()};
  return ready;
}
void GraphCache::launch_graph(cudaGraphExec_t graph, cudaStream_t stream) {
  LaunchObserver* const observer = launch_observer();
  if (observer != nullptr) observer->before(kGraphLaunch, stream);
  EVALRUN_CUDA(cudaGraphLaunch(graph, stream));
  if (observer != nullptr) observer->after(kGraphLaunch, stream);
}

void GraphCache::clear() {
  for (const auto& [key, entry] : graphs_) (void)cudaGraphExecDestroy(entry.graph);
  graphs_.clear();
  seen_.clear();
  order_.clear();
}

}  // namespace evalrun::engine::cuda
