// Captured queues of kernels by what they depend on. The first run of a kind is queued launch by
// launch (it may allocate on its way) and captured while the device works; all others are one
// launch.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <list>
#include <map>
#include <vector>

namespace evalrun::engine::cuda {

// What a LaunchObserver is told instead of a kernel's name when a graph is launched.
constexpr const char* kGraphLaunch = "graph";

class GraphCache {
 public:
  GraphCache() = default;
  ~GraphCache() { clear(); }
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  using Key = std::vector<int64_t>;
  // Queues the work of `key` on the stream; `queue` must always queue the same for the same key.
  template <typename Queue>
  void run(const Key& key, bool graphs, cudaStream_t stream, const Queue& queue) {
    if (!graphs) return queue();
    Entry& entry = use(key);
    if (entry.graph != nullptr) return launch_graph(entry.graph, stream);
    // The device works on the launches while the host captures them.
    queue();
    count_miss();
    begin_capture(stream);
    try {
      queue();
    } catch (...) {
      abandon_capture(stream);
      throw;
    }
    entry.graph = end_capture(stream);
    if (entry.graph == nullptr) clear();  // no memory for it: the others give theirs back
  }
  void clear();

 private:
  static constexpr size_t kMost = 512;  // kinds kept; the one unused longest goes
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    std::list<Key>::iterator place;
  };
  Entry& use(const Key& key);
  static void count_miss();
  static void begin_capture(cudaStream_t stream);
  static void abandon_capture(cudaStream_t stream);
  static cudaGraphExec_t end_capture(cudaStream_t stream);  // null when memory ran out
  static void launch_graph(cudaGraphExec_t graph, cudaStream_t stream);

  std::map<Key, Entry> entries_;
  std::list<Key> order_;  // most recently used first
};

}  // namespace evalrun::engine::cuda
