// One model's mutable state: KV caches of one or more sequences, and the forward pass over a token
// tree. Methods, runners and tests see only this interface; devices differ behind it
// (engine/backend.h).
//
// A step, in the notation of methods/: C tokens of a sequence are committed (positions 0..C-1, K/V
// in the cache). `forward(rows)` computes rows that see the whole committed context, their
// ancestors in the request and themselves; it never changes the cache. `commit(path)` appends
// exactly those rows, as if nothing else had been tried.
//
// Row-count-invariant numerics: the outputs of a row depend on its input, position and the tokens
// it sees - not on how many other rows are in the request, where in the request it stands, which
// tree it belongs to, the thread count or the instruction set. Bits are equal, not close. Greedy
// losslessness of every method rests on this rule. How it is kept: docs/architecture.md,
// "Numerics".
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/low_rank.h"
#include "engine/model/model.h"
#include "engine/sampling.h"

namespace evalrun::engine {

inline constexpr int kMaxRows = 1024;      // rows of one forward
inline constexpr int kPrefillChunk = 256;  // tokens, on the CPU; a device may have its own
// Rows of a step, with logits, that a device plans its memory for; more may find none.
inline constexpr int kPlannedRows = 64;

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
  bool prefix = false;  // sees ForwardRequest::prefix in front of the context (BiTA mask rows)
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
class RowProgram;  // engine/row_program.h

// What is known of one row's logits: all of them, or the best, the largest first (ties: the smaller
// index), fewer where the vocabulary has fewer, and log_sum() of all where that was asked for.
struct RowScores {
  std::span<const float> logits;
  std::span<const TokenLogit> best;
  double log_sum = 0;
  std::span<const int32_t> drawn = {};  // tokens of its DistributionDraw
};

// The same of several rows.
struct Scores {
  MatrixView logits;                 // [rows, vocab], or nothing
  std::span<const TokenLogit> best;  // [rows, n_best]
  int n_best = 0;
  std::span<const double> log_sums;  // [rows], or nothing
  RowScores row(int i) const;
};
constexpr int kMostBest = 64;  // best tokens of a row

// Extra keys and values per layer, visible to flagged rows only, in front of the context
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

// Distributions that drafts were drawn from, kept where the target's logits will be, so that
// neither crosses the bus (Session::make_distributions).
class DistributionStore {
 public:
  virtual ~DistributionStore() = default;
  int slots() const { return slots_; }
  int vocab() const { return vocab_; }  // target ids 0..vocab-1
  // Of the drafter's outputs, how many a row that is kept must have; 0 = they are the target's ids.
  int n_ids() const { return n_ids_; }
  const std::string& device() const { return device_; }  // as in SessionOptions

 protected:
  DistributionStore(std::string device, int slots, int vocab, std::span<const int32_t> ids)
      : device_(std::move(device)),
        slots_(slots),
        vocab_(vocab),
        n_ids_(static_cast<int>(ids.size())) {}

 private:
  const std::string device_;
  const int slots_, vocab_, n_ids_;
};

// Draws a row's tokens (target ids), one by each uniform, none twice, and keeps the distribution
// they came from in a slot.
struct DistributionDraw {
  int32_t row = 0, slot = 0;
  std::span<const double> uniforms = {};  // in [0, 1), 1..kMostBest; the first is Row::uniform, too
};
// Draws from logits that no forward computes (Session::draw).
struct DistributionDraws {
  const SamplingParams* sampling = nullptr;
  DistributionStore* dists = nullptr;
  std::span<const DistributionDraw> rows = {};  // in order of rows
};
// Tries children of a row that were drawn from a kept distribution, in the order of the draws: at
// most one passes, otherwise a token of the target's own comes (engine/rejection.h).
struct RejectionTest {
  int32_t row = 0, slot = 0;
  std::span<const int32_t> children = {};
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

// What a session remembers of the tokens it commits, for drafters that read the target's features.
struct FeatureSet {
  bool hidden = false;  // after the final norm: what the output matrix is applied to
  std::vector<int> residual_layers =
      {};  // residual streams entering these layers, as in ForwardRequest
  bool empty() const { return !hidden && residual_layers.empty(); }
  bool operator==(const FeatureSet&) const = default;
};

// Brings one row of logits to the host when it is looked at. A tree's verification looks at the few
// nodes on its way; on a GPU all others stay where they were computed.
class LogitSource {
 public:
  virtual void fetch(int slot) = 0;  // into row `slot` of ForwardResult::logits

 protected:
  ~LogitSource() = default;
};

// Views into the session's workspace; valid until its next forward, prefill, head, multiply or
// score call. logits_of[i] / hidden_of[i] is the row number inside `logits` / `hidden`, -1 when not
// asked for.
struct ForwardResult {
  MatrixView logits;                     // [rows that asked, vocab]; read by logits_row()
  LogitSource* source = nullptr;         // not null: rows of `logits` are there once it was asked
  MatrixView hidden;                     // [rows that asked, d_model]
  std::span<const MatrixView> residual;  // one per residual_layers entry, [rows, d_model]
  std::span<const int32_t> logits_of, hidden_of;
  std::span<const int32_t> top, drawn;  // [rows], -1 for rows that did not ask
  // [rows], of those with a RejectionTest the child that passed (its token is `drawn`), -1 = none.
  std::span<const int32_t> passed;
  std::span<const int32_t>
      drawn_tokens;  // of all DistributionDraws in turn; -1 where nothing was left
  // [rows], of those with a DistributionDraw: what the drawn token's probability is, the likeliest
  // one's being 1; -1 for others.
  std::span<const double> weight;
  Scores best;                       // of the rows that asked, in order
  std::span<const int32_t> best_of;  // row -> number inside `best`, -1 when not asked for
  // Logits or best, whichever was asked for.
  RowScores scores(int row) const;
  std::span<const float> logits_row(int row) const {
    const int32_t slot = logits_of[static_cast<size_t>(row)];
    if (source != nullptr) source->fetch(slot);
    return logits.row(slot);
  }
  std::span<const float> hidden_row(int row) const {
    return hidden.row(hidden_of[static_cast<size_t>(row)]);
  }
};

// Where the time of one forward went, in milliseconds of the calling thread. Only with
// SessionOptions::measure_phases, which costs a clock read per phase.
struct PhaseTimes {
  double weights = 0;    // products with the layers' matrices
  double attention = 0;  // scores, softmax, weighted values
  double norms = 0;      // norms, rounding of inputs, rope, residual adds, embedding
  double head = 0;       // final norm, product with the output matrix, argmax
  double waits = 0;      // at barriers
  double total() const { return weights + attention + norms + head + waits; }
};

struct SessionOptions {
  int max_tokens = 2048;  // committed tokens a sequence can hold; <= what memory allows
  int n_sequences = 1;
  int n_threads = 0;     // 0 = cores allowed (affinity and cgroup); always 1 on a GPU
  bool kv_cache = true;  // false: every forward recomputes the committed tokens (BiTA's and SPACE's
                         // released decoders ran so; for honest comparison with them)
  std::string device = "cpu";  // or "cuda", "cuda:N": engine/devices.h
  std::string isa;             // "" = best available, see available_isas(); on a GPU its "sm_90"
  // Gives up equal bits across instruction sets where that is faster; a row's bits still depend on
  // the row alone. Only paths of one_isa_paths() have this.
  bool one_isa = false;
  // Keys and values: "f32", "bf16" or "int8" (one scale per position and head); "" = float32 with
  // f32 weights, bfloat16 otherwise. A GPU has the latter two only.
  std::string kv_dtype;
  bool measure_phases = false;
  // On a GPU: adds to device_time(). Two events around what is queued, no synchronisation.
  bool time_device = false;
};

std::vector<std::string> one_isa_paths();  // of this machine
// "f32", "bf16", "int8".
std::vector<std::string> kv_dtypes();

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

  // Commits tokens at positions length().. in chunks whose borders are multiples of
  // kPrefillChunk (or what the device takes) in absolute positions: committed tokens only, the same
  // calls whatever method runs. Throws usage_error when they do not fit. Does not compute logits.
  virtual void prefill(std::span<const int32_t> tokens, int sequence = 0) = 0;

  // Throws usage_error when rows do not fit behind the context, InternalError for malformed trees.
  virtual ForwardResult forward(const ForwardRequest& request) = 0;

  // Appends rows of the last forward to their sequence: path[0] has parent -1, each next one sees
  // the one before, positions are length(), length()+1, ... Once per forward and sequence.
  virtual void commit(std::span<const int> path, int sequence = 0) = 0;

  virtual void rewind(int length,
                      int sequence = 0) = 0;  // forgets everything behind `length` tokens
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
  // Heads: one matrix for all rows of x, or one for each. Their products are logits of which only
  // the `n_best` largest are wanted, 1..kMostBest; 0 = the logits themselves, of the host's rows or
  // computed ones.
  using Heads = std::span<const WeightMatrix* const>;
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
};

// Instruction-set paths this machine can run, best first; "reference" is always last. All give the
// same bits.
std::vector<std::string> available_isas();
// Physical cores this process may use (affinity mask and cgroup quota): the default thread count.
int allowed_cores();

}  // namespace evalrun::engine
