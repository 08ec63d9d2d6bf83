// The memory that a forward computes in. It only grows, so that a steady state allocates nothing.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/forward_plan.h"
#include "engine/model/model.h"

namespace evalrun::engine::cpu {

struct Workspace {
  // What row phases read and write; shared by the threads (the first one), or each thread's own.
  struct Space {
    Rows x;           // residual stream
    Rows e;           // embeddings beside it, in models with paired input
    Rows h;           // one sublayer's input, one row per row
    Rows queries;     // [kv head][row][group * head_dim], rotated
    PreparedRows in;  // rounded input of the next product
  };
  // Argmax over a thread's part of the vocabulary.
  struct Best {
    Rows logits;        // a strip of logits of all rows
    Rows value, block;  // [row][16] best value of each lane and the block of 16 it was in
  };

  Workspace(const Model& model, int n_threads);
  // For a forward of that model in the first `used` spaces, with this many residual streams.
  void make_room(const Model& model, const Kernels& kernels, const ForwardPlan& plan, size_t used,
                 size_t residuals);
  size_t bytes() const;

  // What rows are rounded for in the layers: K-quants where a matrix is one.
  const WeightStorage layer_inputs;
  std::vector<Space> spaces;         // [thread]
  std::vector<Best> best;            // [thread]
  Rows q, k, v, mixed, y, gate, up;  // outputs of products and attention
  Rows hidden, logits;               // what was asked for
  Rows normed;                       // inputs of the head, rows of logits first
  PreparedRows head_in;              // the same, rounded
  std::vector<Rows> residual;        // [of the request's residual_layers]
  int strip_panels = 0;              // of the head, of one of Best::logits
};

}  // namespace evalrun::engine::cpu
