#include "engine/cuda/runtime/graphs.h"

#include <utility>

#include "engine/cuda/runtime/check.h"
#include "engine/device_time.h"

namespace evalrun::engine::cuda {

GraphCache::Entry& GraphCache::use(const Key& key) {
  if (const auto it = entries_.find(key); it != entries_.end()) {
    order_.splice(order_.begin(), order_, it->second.place);
    return it->second;
  }
  if (entries_.size() >= kMost) {
    wait_for_launches();
    const auto oldest = entries_.find(order_.back());
    if (oldest->second.graph != nullptr) (void)cudaGraphExecDestroy(oldest->second.graph);
    entries_.erase(oldest);
    order_.pop_back();
  }
  order_.push_front(key);
  Entry& entry = entries_[key];
  entry.place = order_.begin();
  return entry;
}

void GraphCache::wait_for_launches() {
  if (launched_on_ != nullptr) (void)cudaStreamSynchronize(std::exchange(launched_on_, nullptr));
}

void GraphCache::count_miss() { ++device_time().graph_misses; }

void GraphCache::begin_capture(cudaStream_t stream) {
  EVALRUN_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}
void GraphCache::abandon_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
}
cudaGraphExec_t GraphCache::end_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  EVALRUN_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t ready = nullptr;
  const cudaError_t e = cudaGraphInstantiate(&ready, graph, 0);
  (void)cudaGraphDestroy(graph);
  if (e == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // no sticky one
    return nullptr;
  }
  EVALRUN_CUDA(e);
  return ready;
}
void GraphCache::launch_graph(cudaGraphExec_t graph, cudaStream_t stream) {
  LaunchObserver* const observer = launch_observer();
  if (observer != nullptr) observer->before(kGraphLaunch, stream);
  EVALRUN_CUDA(cudaGraphLaunch(graph, stream));
  if (observer != nullptr) observer->after(kGraphLaunch, stream);
}

void GraphCache::clear() {
  wait_for_launches();
  for (const auto& [key, entry] : entries_)
    if (entry.graph != nullptr) (void)cudaGraphExecDestroy(entry.graph);
  entries_.clear();
  order_.clear();
}

}  // namespace evalrun::engine::cuda
