// Products with matrices beside a model's own (heads and input layers of drafters), by the kernels
// of a forward: of rows from the host, or of what a RowProgram left on the device.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/cuda/answer_buffers.h"
#include "engine/cuda/kernels/device_matrix.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/graphs.h"
#include "engine/cuda/runtime/queue.h"
#include "engine/row_program.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

class SideProducts {
 public:
  // More rows than this are those of prompts, each length its own: a graph would be met once.
  static constexpr int kGraphRows = kPlannedRows;

  explicit SideProducts(bool graphs) : graphs_wanted_(graphs) {}
  // Queues the steps and waits for nothing; nothing queued before may still read what the last
  // call was given. `embedding`: of the session's model. The view is of device memory.
  InputView compute(const RowProgram& program, int result, const DeviceMatrix& embedding,
                    int device, Queue& on);
  // The others wait. [n, in] -> [n, out] in page-locked memory, valid until the next call. x may be
  // the last result.
  MatrixView multiply(const WeightMatrix& w, InputView x, int device, Queue& on);
  // Of rows of logits, the n_best largest each.
  Scores best_of(Heads heads, InputView x, int n_best, int device, Queue& on);
  // Draws from rows of logits, their distributions kept on this device.
  std::span<const int32_t> draw(Heads heads, InputView x, const DistributionDraws& draws,
                                int device, Queue& on);
  // The queue has run.
  void waited() { graphs_.waited(); }
  std::vector<const DeviceBuffer*> buffers() const;

 private:
  // What a program's step reads and writes.
  struct Value {
    const float* data = nullptr;
    int rows = 0, cols = 0;
    bool rounded = false;  // bfloat16_ holds it
    DeviceBuffer own, bfloat16;
  };
  template <typename Kind>
  void room(Buffer<Kind>& buffer, size_t bytes) {
    if (buffer.ensure(bytes)) graphs_.clear();  // they know where things were
  }
  void room(const ProductGeometry& geometry, cudaStream_t stream);
  void add_to_key(const DeviceMatrix& m);
  void add_to_key(const AnswerShape& shape);
  void start_key(const InputView& x);  // of heads_ on x
  // Before anything is queued: heads_, room, host rows in page-locked memory.
  void prepare(Heads heads, const InputView& x, int device, cudaStream_t stream);
  // y = heads x as prepared; y: [rows, outputs]
  void queue(const InputView& x, float* y, int outputs, cudaStream_t stream);
  void queue(const RowProgram& program, const DeviceMatrix& embedding, size_t given,
             cudaStream_t stream);
  const DeviceMatrix& keep(const WeightMatrix& w, int device, cudaStream_t stream);
  const float* keep(const SharedVector& bias, int padded, cudaStream_t stream);  // null stays null
  // An arm may have gone with its drafter, and what it queued last may still be under way.
  template <typename K>
  static void forget_the_dead(std::vector<K>& kept, cudaStream_t stream);

  const bool graphs_wanted_;
  GraphCache graphs_;
  GraphCache::Key key_;  // what the work under way depends on, but for where buffers are
  std::vector<const DeviceMatrix*> heads_;
  std::vector<Value> values_;
  std::vector<const DeviceMatrix*> step_matrices_;  // [step], null where it is no product
  std::vector<const float*> step_biases_;
  PinnedBuffer given_host_;  // values given, then tokens
  DeviceBuffer given_;
  PinnedBuffer x_host_, y_host_;
  DeviceBuffer x_, rounded_, y_;
  ProductWorkspace workspace_;
  AnswerBuffers answers_;
  std::vector<TokenLogit> best_, row_best_;
  PinnedBuffer asked_host_;  // tasks, then uniforms
  DeviceBuffer asked_;
  std::vector<AnswerTask> tasks_;
  std::vector<double> uniforms_;
  std::vector<int32_t> tokens_;
  // Drafters ask for the same few again and again: they stay while their host matrix lives.
  struct Kept {
    std::weak_ptr<const std::byte> host;
    std::shared_ptr<const DeviceMatrix> matrix;
  };
  std::vector<Kept> kept_;
  struct KeptBias {
    std::weak_ptr<const std::vector<float>> host;
    const void* key;
    DeviceBuffer data;  // padded with zeros
  };
  std::vector<KeptBias> biases_;
};

}  // namespace evalrun::engine::cuda
