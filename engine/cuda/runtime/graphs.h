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
    if (entry.graph != nullptr) {
      launched_on_ = stream;
      return launch_graph(entry.graph, stream);
    }
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
  // Waits for launches that may be under way, and destroys all graphs.
  void clear();
  // The stream of run() has run.
  void waited() { launched_on_ = nullptr; }

 private:
  static constexpr size_t kMost = 512;  // kinds kept; the one unused longest goes
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    std::list<Key>::iterator place;
  };
  Entry& use(const Key& key);
  // Before a graph is destroyed: only the driver's manual says that it may be under way.
  void wait_for_launches();
  static void count_miss();
  static void begin_capture(cudaStream_t stream);
  static void abandon_capture(cudaStream_t stream);
  static cudaGraphExec_t end_capture(cudaStream_t stream);  // null when memory ran out
  static void launch_graph(cudaGraphExec_t graph, cudaStream_t stream);

  std::map<Key, Entry> entries_;
  std::list<Key> order_;                // most recently used first
  cudaStream_t launched_on_ = nullptr;  // since the last waited()
};

}  // namespace evalrun::engine::cuda
