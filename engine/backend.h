// What a device implements. The session (engine/session.cpp) owns sequences, validity and the plan
// of a forward; a backend owns memory and arithmetic. A new device is one class of this interface.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "engine/answers.h"
#include "engine/forward_plan.h"
#include "engine/model/model.h"
#include "engine/results.h"
#include "engine/session_options.h"
#include "engine/weight_placement.h"

namespace evalrun::engine {

class CacheBlocks;  // engine/cache_blocks.h
class RowProgram;   // engine/row_program.h

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string isa() const = 0;
  virtual int n_threads() const = 0;

  // Computes all rows of the plan into scratch; caches stay as they are. `request` carries what the
  // plan does not resolve: embeddings, prefix bank, low-rank deltas, skip set, residual layers.
  // Fills logits, hidden and residual of `result`, and the answers of plan.answer_rows().
  virtual void forward(const ForwardPlan& plan, const ForwardRequest& request,
                       ForwardResult& result, Answers& answers) = 0;
  // Session::prefill() computes at most this many tokens of a sequence at a time, and ends chunks
  // at multiples.
  virtual int prefill_chunk() const { return kPrefillChunk; }
  // Whether one forward takes prefill chunks of several sequences.
  virtual bool prefills_together() const { return true; }
  // Copies K/V of rows of the last forward to the caches, of any sequences; positions of each
  // ascend and leave no gap.
  virtual void commit(std::span<const CommitRow> rows) = 0;
  virtual void copy_sequence(int from, int to, int length) = 0;
  virtual MatrixView multiply(const WeightMatrix& w, InputView x) = 0;  // [n, in] -> [n, out]
  virtual InputView compute(const RowProgram& program, int result) = 0;
  // Whether it finds the best of a row and draws itself. Otherwise only top tokens are asked of it.
  virtual bool answers() const { return false; }
  // Session::score() with n_best >= 1, and draw(); only where it answers.
  virtual Scores best_of(Heads heads, InputView x, int n_best);
  virtual std::span<const int32_t> draw(Heads heads, InputView x, const DistributionDraws& draws);
  virtual std::unique_ptr<DistributionStore> make_distributions(int slots, int vocab,
                                                                std::span<const int32_t> ids);
  virtual void read_kv(int layer, int position, int sequence, std::span<float> k,
                       std::span<float> v) const = 0;
  virtual PhaseTimes phases() const { return {}; }
  virtual size_t kv_bytes_per_token() const = 0;
  virtual size_t kv_bytes() const = 0;
  virtual size_t workspace_bytes() const = 0;
  virtual WeightPlacement weight_placement() const { return {}; }
};

// The oracle: one thread, loops in the order the numerics are defined in. Same bits as the fast
// path.
std::unique_ptr<Backend> make_reference_backend(std::shared_ptr<const Model> model,
                                                const SessionOptions& options);
// Vector kernels of `options.isa` on a thread pool.
// `blocks`: where the sequences' keys and values lie; outlives it.
std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<const Model> model,
                                          const SessionOptions& options, const CacheBlocks& blocks);
// Kernels on the GPU `options.device`, "cuda:N". Throws data_error when its memory is too small.
std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<const Model> model,
                                           const SessionOptions& options);
// Bytes that such a session takes of its GPU, weights left out; of the model's weights what is not
// there yet; what is free there for both, without what the driver takes once for all
// (engine/cuda/memory_plan.h).
double cuda_session_bytes(const Model& model, const SessionOptions& options);
double cuda_missing_weights(const Model& model, const SessionOptions& options);
double cuda_free_bytes(const std::string& device);

}  // namespace evalrun::engine
