// Rows that are computed beside the draft in the target's forward, and are not tested.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/rows.h"

namespace evalrun::methods {

// Rows that ride along in the target's forward without being tested: the Jacobi window of
// Lookahead, the branches of Self-Draft, the masks of SPACE and BiTA. They see a node of the draft
// tree with its ancestors, and their own ancestors. Tokens that are read get the target's greedy
// continuation, masks their state after the final norm. Such methods draft with these.
struct SideRows {
  std::vector<int32_t> token;   // [n], a token, or -1 - e for embedding e of SideInputs (a mask)
  std::vector<int32_t> parent;  // [n], under(node) of the tree, else an earlier side row
  std::vector<uint8_t> read;    // [n], a row that is not read costs no output matrix
  static constexpr int under(int node) { return -1 - node; }  // the root: -1
  static constexpr int mask(int embedding) { return -1 - embedding; }
  void clear() {
    token.clear();
    parent.clear();
    read.clear();
  }
  int add(int32_t t, int parent_row, bool is_read) {  // returns the new row
    token.push_back(t);
    parent.push_back(parent_row);
    read.push_back(is_read);
    return size() - 1;
  }
  int size() const { return static_cast<int>(token.size()); }
};

// What masks are made of, and what only they see or run through. Outlives the forward.
struct SideInputs {
  engine::MatrixView embeddings = {};  // [masks, d_model]
  const engine::PrefixBank* prefix = nullptr;
  const engine::LowRankDelta* low_rank = nullptr;
  // Of masks that are read: this many of their best tokens by the target's own head; 0 = their
  // hidden states.
  int best = 0;
};

}  // namespace evalrun::methods
