// What a forward is asked: rows of a token tree and what each of them wants.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/distributions.h"
#include "engine/model/low_rank.h"
#include "engine/sampling.h"

namespace evalrun::engine {

inline constexpr int kMaxRows = 1024;  // rows of one forward
// Rows of a step, with logits, that a device plans its memory for; more may find none.
inline constexpr int kPlannedRows = 64;
inline constexpr int kMostBest = 64;       // best tokens of a row
inline constexpr int kPrefillChunk = 256;  // tokens, on the CPU; a device may have its own

// One row of a forward request.
struct Row {
  int32_t token = -1;      // vocabulary id; ignored when embedding >= 0
  int32_t embedding = -1;  // index into ForwardRequest::embeddings, -1 = use `token`
  int32_t parent = -1;  // index of an earlier row of the same sequence, -1 = sees only the context
  int32_t position = -1;  // -1 = C + (visible rows of the request outside its own block) + its slot
                          // in the block; for trees that is C + depth
  int32_t sequence = 0;   // which KV cache
  int32_t block = -1;   // rows with the same block >= 0 see each other (Falcon); they are adjacent
                        // and share one parent, which is outside the block
  bool prefix = false;  // sees ForwardRequest::prefix before the context (BiTA mask rows)
  bool low_rank = false;  // ForwardRequest::low_rank applies to this row
  bool logits = true;     // wants logits
  // Answers that need no logits in the host's memory; a GPU sends some bytes for each.
  bool top = false;   // wants the index of its largest logit (ties: the smallest index)
  bool best = false;  // wants its ForwardRequest::best largest logits
  // >= 0: wants draw(logits, *ForwardRequest::sampling, uniform), or the row's DistributionDraw or
  // RejectionTest by it
  double uniform = -1;
  bool hidden = false;  // wants the hidden state after the final norm
};

// Row-major view, [rows, cols].
struct MatrixView {
  const float* data = nullptr;
  int rows = 0, cols = 0;
  std::span<const float> row(int i) const {
    return {data + static_cast<size_t>(i) * static_cast<size_t>(cols), static_cast<size_t>(cols)};
  }
};

// Rows that a forward, a score or a draw takes in: the host's, or what Session::compute() left
// where it was computed, which is not for the host to read.
struct InputView : MatrixView {
  InputView() = default;
  InputView(const float* values, int n, int width) : MatrixView{values, n, width} {}
  InputView(const MatrixView& host) : MatrixView(host) {}  // NOLINT: the host's rows are the rule
  bool computed = false;
};

// Output matrices of a score or a draw: one for all rows, or one for each.
using Heads = std::span<const WeightMatrix* const>;

// Extra keys and values per layer, visible to flagged rows only, before the context
// (BiTA, Lin et al. 2024, arXiv 2401.12522, section 3). k, v: [n_layers][length * heads *
// head_dim], used as given (no rotation is applied).
struct PrefixBank {
  int length = 0;
  // n_kv_heads, or n_heads: then each query head has prefix keys and values of its own, as in
  // programs that repeat the target's before they put the prefix in front.
  int heads = 0;  // 0 = n_kv_heads
  std::vector<std::vector<float>> k, v;
  // Not 0: the contents never change under this number (next_id()), so they are loaded once.
  uint64_t id = 0;
  static uint64_t next_id();
};

// Sublayers left out of one forward (self-speculative decoding): skipped = residual passes
// unchanged.
struct SkipSet {
  std::vector<bool> attention, mlp;  // [n_layers] or empty = none
  bool empty() const { return attention.empty() && mlp.empty(); }
  bool operator==(const SkipSet&) const = default;
};

struct ForwardRequest {
  std::span<const Row> rows;  // 1..kMaxRows
  InputView embeddings = {};  // [n, input_width], for rows with embedding >= 0
  // The rows go on from those of the forwards before, which stay: row numbers (parent, commit)
  // count on from theirs, results hold the new rows only. For drafters that grow a tree level by
  // level. Nothing may have been committed, rewound or prefilled in between.
  bool extend = false;
  const PrefixBank* prefix = nullptr;  // must outlive the call, like everything here
  const LowRankDelta* low_rank = nullptr;
  const SkipSet* skip = nullptr;
  std::span<const int> residual_layers = {};  // residual stream entering these layers; n_layers =
                                              // the stream before the final norm (EAGLE-3 features)
  int best = 0;                               // how many, for rows with Row::best; 1..kMostBest
  bool log_sums = false;                      // of rows with Row::best
  const SamplingParams* sampling = nullptr;   // for rows with Row::uniform
  // A row has one of these at most, and no logits; in order of rows.
  DistributionStore* dists = nullptr;
  std::span<const DistributionDraw> distribution_draws = {};
  std::span<const RejectionTest> rejection_tests = {};
  bool independent = false;  // children of tests were drawn each from the whole distribution
};

// What a session remembers of the tokens it commits.
struct FeatureSet {
  bool hidden = false;  // after the final norm: what the output matrix is applied to
  std::vector<int> residual_layers =
      {};  // residual streams entering these layers, as in ForwardRequest
  bool empty() const { return !hidden && residual_layers.empty(); }
  bool operator==(const FeatureSet&) const = default;
};

}  // namespace evalrun::engine
