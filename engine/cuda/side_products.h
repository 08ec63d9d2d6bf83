// Products with matrices beside a model's own (heads and input layers of drafters): rows from the
// host and back, by the kernels of a forward.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "engine/cuda/device_matrix.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

class SideProducts {
 public:
  // [n, in] -> [n, out] in page-locked memory, valid until the next call. x may be the last result.
  MatrixView multiply(const WeightMatrix& w, MatrixView x, int device, cudaStream_t stream);
  std::vector<const DeviceBuffer*> buffers() const { return {&x_, &rounded_, &y_, &workspace_}; }

 private:
  PinnedBuffer x_host_, y_host_;
  DeviceBuffer x_, rounded_, y_, workspace_;
  // Stay on the device: drafters ask for the same few again and again.
  std::map<const DeviceMatrix*, std::shared_ptr<const DeviceMatrix>> matrices_;
};

}  // namespace evalrun::engine::cuda
