// Products with matrices beside a model's own (heads and input layers of drafters): rows from the
// host and back, by the kernels of a forward.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/cuda/answer_buffers.h"
#include "engine/cuda/device_matrix.h"
#include "engine/cuda/products.h"
#include "engine/cuda/queue.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

class SideProducts {
 public:
  // [n, in] -> [n, out] in page-locked memory, valid until the next call. x may be the last result.
  MatrixView multiply(const WeightMatrix& w, MatrixView x, int device, Queue& on);
  // Of rows of logits w x, the n_best largest each.
  Scores best_of(const WeightMatrix& w, MatrixView x, int n_best, int device, Queue& on);
  // Draws from rows of logits w x, their laws kept on this device.
  std::span<const int32_t> draw(const WeightMatrix& w, MatrixView x, const LawDraws& draws,
                                int device, Queue& on);
  std::vector<const DeviceBuffer*> buffers() const;

 private:
  void stage(MatrixView x);  // into page-locked memory
  // y = m x of what was staged; y: [rows, outputs]
  void queue(const DeviceMatrix& m, MatrixView x, float* y, int outputs, cudaStream_t stream);
  const DeviceMatrix& keep(const WeightMatrix& w, int device, cudaStream_t stream);

  PinnedBuffer x_host_, y_host_;
  DeviceBuffer x_, rounded_, y_;
  ProductWorkspace workspace_;
  AnswerBuffers answers_;
  std::vector<TokenLogit> best_, row_best_;
  PinnedBuffer asked_host_;  // tasks, then chances
  DeviceBuffer asked_;
  std::vector<AnswerTask> tasks_;
  std::vector<double> chances_;
  std::vector<int32_t> tokens_;
  // Drafters ask for the same few again and again: they stay while their host matrix lives.
  struct Kept {
    std::weak_ptr<const std::byte> host;
    std::shared_ptr<const DeviceMatrix> matrix;
  };
  std::vector<Kept> kept_;
};

}  // namespace evalrun::engine::cuda
