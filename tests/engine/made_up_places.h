// Threads that a test says sit on several NUMA nodes, whatever machine it runs on.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cpu/places.h"
#include "engine/model/model.h"
#include "engine/session.h"

namespace evalrun::engine::testing {

// [thread] the number of its node, below 8; each node is one cache, with so many bytes free.
inline cpu::Places made_up_places(std::vector<int> node, int64_t free_bytes = int64_t{1} << 40) {
  return {node, node, std::vector<int64_t>(8, free_bytes)};
}
// n threads, the first half on node 0, the others on node 1.
inline cpu::Places two_nodes(int n, int64_t free_bytes = int64_t{1} << 40) {
  std::vector<int> node;
  for (int t = 0; t < n; ++t) node.push_back(2 * t < n ? 0 : 1);
  return made_up_places(std::move(node), free_bytes);
}

// A session of as many threads, on the fastest path. `places` must outlive it.
inline std::unique_ptr<Session> open_at(const cpu::Places& places,
                                        const std::shared_ptr<const Model>& model) {
  SessionOptions o;
  o.n_threads = static_cast<int>(places.node.size());
  o.max_tokens = 128;
  o.places = &places;
  return Session::create(model, o);
}

}  // namespace evalrun::engine::testing
