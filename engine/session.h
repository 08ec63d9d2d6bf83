// One model's mutable state: KV caches of one or more sequences, and the forward pass over a token
// tree. Methods, runners and tests see only this interface, whatever the device (engine/backend.h).
//
// A step, in the notation of methods/: C tokens of a sequence are committed (positions 0..C-1, K/V
// in the cache). `forward(rows)` computes rows that see the whole committed context, their
// ancestors in the request and themselves; it never changes the cache. `commit(path)` appends
// exactly those rows, as if nothing else had been tried. One forward and one commit serve many
// sequences; each has a length of its own.
//
// Row-count-invariant numerics: the outputs of a row depend on its input, position and the tokens
// it sees - not on how many other rows are in the request, where in the request it stands, which
// tree it belongs to, the thread count or the instruction set. Bits are equal, not close. Greedy
// losslessness of every method rests on this rule. How it is kept: docs/architecture.md,
// "Numerics".
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/distributions.h"
#include "engine/model/model.h"
#include "engine/results.h"
#include "engine/rows.h"
#include "engine/session_options.h"
#include "engine/weight_placement.h"

namespace evalrun::engine {

class RowProgram;  // engine/row_program.h

struct SequenceTokens {
  int sequence = 0;
  std::span<const int32_t> tokens;
};
struct SequencePath {
  int sequence = 0;
  std::span<const int> path;  // rows of the last forward
};

class Session {
 public:
  // Throws usage_error (what resolve_options() refuses, engine/session_options.h) and data_error
  // (not enough memory).
  static std::unique_ptr<Session> create(std::shared_ptr<const Model> model,
                                         const SessionOptions& options);
  virtual ~Session() = default;

  virtual const Model& model() const = 0;
  virtual const SessionOptions& options() const = 0;  // with defaults resolved
  virtual std::string isa() const = 0;                // path in use: "avx512", "reference", "sm_90"
  virtual int n_threads() const = 0;
  // Whether a draw (Row::uniform) costs less than the logits it is made from: a device draws for
  // all rows of a tree at once; the host better asks for logits and draws where it looks.
  virtual bool draws_cheaply() const = 0;
  // Room for distributions over target ids 0..vocab-1, kept by forwards and products of any session
  // on this device; `ids`: the target ids of a drafter's outputs where they differ. Worth its while
  // where draws are cheap.
  virtual std::unique_ptr<DistributionStore> make_distributions(int slots, int vocab,
                                                                std::span<const int32_t> ids) = 0;

  // Number of committed tokens of a sequence.
  virtual int length(int sequence = 0) const = 0;
  int capacity() const { return options().max_tokens; }
  // How many more this sequence could hold: what is left of its max_tokens and, with a pool of
  // fewer positions than that for all, of the pool.
  virtual int free_tokens(int sequence = 0) const = 0;

  // Commits tokens at positions length().. of each sequence, which is named once, in chunks whose
  // borders are multiples of kPrefillChunk (or what the device takes) in absolute positions:
  // committed tokens only, the same calls whatever method runs. Chunks of several sequences are
  // computed together where a device does that. Throws usage_error when not all of them fit, and
  // has done nothing then. Does not compute logits.
  virtual void prefill(std::span<const SequenceTokens> parts) = 0;
  void prefill(std::span<const int32_t> tokens, int sequence = 0) {
    const SequenceTokens part{sequence, tokens};
    prefill(std::span(&part, 1));
  }

  // Throws usage_error when rows do not fit after the context, InternalError for malformed trees.
  virtual ForwardResult forward(const ForwardRequest& request) = 0;

  // Appends rows of the last forward to their sequences: path[0] has parent -1, each next one sees
  // the one before, positions are length(), length()+1, ... Once per forward and sequence. Throws
  // usage_error when the pool has no room for all of them. Where it throws, nothing was committed.
  virtual void commit(std::span<const SequencePath> paths) = 0;
  void commit(std::span<const int> path, int sequence = 0) {
    const SequencePath one{sequence, path};
    commit(std::span(&one, 1));
  }

  virtual void rewind(int length,
                      int sequence = 0) = 0;  // forgets everything after the first `length` tokens
  virtual void fork(int from, int to) = 0;    // copies a sequence's cache onto another
  // Forgets all sequences. Afterwards the session behaves as a new one.
  void reset() {
    for (int s = 0; s < options().n_sequences; ++s) rewind(0, s);
  }

  // From now on keeps these features of every token that is committed, prefilled ones included
  // (their last layer is then computed in full). What was committed before has none; another set
  // forgets what was kept. Costs nothing while the set is empty.
  virtual void keep_features(const FeatureSet& set) = 0;
  // Of the committed tokens of a sequence, [length, d_model]; valid until the next call that
  // commits, rewinds or prefills. InternalError when some were committed without.
  virtual MatrixView hidden_features(int sequence = 0) const = 0;
  virtual MatrixView residual_features(int index, int sequence = 0) const = 0;  // in FeatureSet

  // Output matrix applied to hidden states (already normed), [n, d_model] -> [n, vocab].
  virtual MatrixView head(InputView hidden) = 0;
  // y = W x for a matrix beside the model's own (inputs of drafters, heads), [n, in] -> [n, out],
  // by the kernels of a forward: a row's bits depend on the row alone.
  virtual MatrixView multiply(const WeightMatrix& w, InputView x) = 0;
  // The rows of the program's value `result`. A device queues the work and waits for nothing: that
  // is left to the forward, score or draw that takes them in. Valid until the next compute().
  virtual InputView compute(const RowProgram& program, int result) = 0;
  // Of the products' logits only the `n_best` largest are wanted, 1..kMostBest; 0 = the logits
  // themselves, of the host's rows or computed ones.
  virtual Scores score(Heads heads, InputView x, int n_best) = 0;
  // The same where only draws are wanted: their tokens in turn.
  virtual std::span<const int32_t> draw(Heads heads, InputView x,
                                        const DistributionDraws& draws) = 0;

  // Raw keys and values of a committed position, for tests: [n_kv_heads * head_dim] each.
  virtual void read_kv(int layer, int position, int sequence, std::span<float> k,
                       std::span<float> v) const = 0;

  // Of the last forward; zeros without SessionOptions::measure_phases.
  virtual PhaseTimes phases() const = 0;
  // Bytes one forward must read at least: every packed weight of the layers and the head, and the
  // keys and values of `context` committed tokens.
  virtual size_t bytes_per_forward(int context) const = 0;

  virtual size_t kv_bytes() const = 0;         // allocated for the caches
  virtual size_t workspace_bytes() const = 0;  // allocated for activations so far
  virtual WeightPlacement weight_placement() const { return {}; }  // on NUMA nodes, of a CPU
};

}  // namespace evalrun::engine
