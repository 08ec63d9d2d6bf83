#include "tests/gpu/report/traffic.h"

#include <cstdlib>

#include "engine/base/error.h"
#include "engine/cuda/runtime/check.h"
#include "engine/session.h"
#include "tests/gpu/emulator/accesses.h"
#include "tests/gpu/emulator/include/emulator.h"

namespace evalrun::engine::gpu_report {
namespace {

// Waits for each launch.
class Counting final : public cuda::LaunchObserver {
 public:
  Counting() { cuda::launch_observer() = this; }
  ~Counting() override { cuda::launch_observer() = nullptr; }
  void before(const char*, cudaStream_t stream) override {
    EVALRUN_CUDA(cudaStreamSynchronize(stream));
    emulator::traffic::start();
  }
  void after(const char* kernel, cudaStream_t stream) override {
    EVALRUN_CUDA(cudaStreamSynchronize(stream));
    KernelTraffic& k = kernels[kernel];
    ++k.launches;
    k.counts += emulator::traffic::stop();
  }
  std::map<std::string, KernelTraffic> kernels;
};

}  // namespace

StepTraffic count_step(const Shape& shape, int n_rows, int context) {
  const emulator::accesses::Unchecked faster;
  const ShapeModel m = make_shape_model(shape, 0, 1);
  SessionOptions o;
  o.device = "cuda";
  o.max_tokens = context + 2 * n_rows;
  // Launch by launch.
  EVALRUN_CHECK(setenv("EVALRUN_CUDA_GRAPHS", "0", 1) == 0);
  const auto session = Session::create(m.model, o);
  EVALRUN_CHECK(unsetenv("EVALRUN_CUDA_GRAPHS") == 0);
  {
    const emulator::WithoutCublas faster_still;  // what lies in the cache moves no address
    session->prefill(std::vector<int32_t>(static_cast<size_t>(context), 5));
  }
  std::vector<Row> rows = random_tree(n_rows, shape.config.vocab_size, 7);
  for (Row& r : rows) r.logits = false, r.top = true;
  Counting counting;
  (void)session->forward({.rows = rows});
  return {std::move(counting.kernels), session->bytes_per_forward(context)};
}

}  // namespace evalrun::engine::gpu_report
