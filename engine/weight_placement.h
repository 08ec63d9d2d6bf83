// Where the weights that a session reads lie, on a machine with several NUMA nodes.
#pragma once
#include <cstddef>
#include <string>

namespace evalrun::engine {

struct WeightPlacement {
  int nodes = 1;  // where the session's threads sit
  // "one node": nothing to place. "copy": each node has the weights of the layers and the head in
  // its own memory. "interleave": their pages lie on the nodes in turns. "off": where the threads
  // that loaded them left them (EVALRUN_NUMA).
  std::string how = "one node";
  size_t copy_bytes = 0;  // of the copies, beside the model's own weights
  std::string refusal;    // why the kernel would not move pages; "" = it did, or had none to move
};

}  // namespace evalrun::engine
