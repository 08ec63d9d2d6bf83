#include "tests/gpu/report/traffic.h"

#include <cstdlib>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/kernels/device_matrix.h"
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
  emulator::traffic::new_step();
  Counting counting;
  (void)session->forward({.rows = rows});
  return {std::move(counting.kernels), session->bytes_per_forward(context)};
}

using emulator::traffic::Counts;

size_t CountedProduct::weight_bytes() const {
  return cuda::DeviceMatrix::bytes_for(storage, tiles * cuda::kTile, in);
}

Counts count_product(const CountedProduct& p, int rows) {
  const emulator::accesses::Unchecked faster;
  // More than codes or scales alone.
  const cuda::DeviceBuffer codes(p.weight_bytes()), scales(p.weight_bytes());
  cuda::ProductArguments a;
  a.w.codes = codes.as<unsigned char>(), a.w.scales = scales.as<unsigned char>();
  a.w.storage = p.storage, a.w.tiles = p.tiles, a.w.in = p.in;
  a.w.blocks = cuda::padded_to(p.in, cuda::kBlock) / cuda::kBlock;
  a.rows = rows;
  const int outputs = p.tiles * cuda::kTile;
  const auto n = static_cast<size_t>(rows);
  const cuda::DeviceBuffer x(n * static_cast<size_t>(a.w.blocks * cuda::kBlock) * 2),
      y(n * static_cast<size_t>(outputs) * 4);
  a.x = x.as<void>();
  a.out.ldy = a.out.outputs = p.result == CountedProduct::kActivated ? outputs / 2 : outputs;
  if (p.result == CountedProduct::kWritten) a.out.y = y.as<float>();
  if (p.result == CountedProduct::kAdded) a.out.residual = y.as<float>();
  if (p.result == CountedProduct::kActivated) a.out.activated = y.as<void>();
  cuda::ProductWorkspace workspace;
  workspace.ensure(cuda::product_geometry(p.storage, p.tiles, a.w.blocks, rows));
  EVALRUN_CUDA(cudaDeviceSynchronize());

  emulator::traffic::new_step();
  for (const void* written :
       {x.as<void>(), y.as<void>(), workspace.sums.as<void>(), workspace.counters.as<void>()})
    if (written != nullptr) emulator::traffic::count_as_written(written);
  Counting counting;
  cuda::multiply(a, workspace, nullptr);
  Counts all;
  for (const auto& [kernel, t] : counting.kernels) all += t.counts;
  return all;
}

Counts count_large_product(const CountedProduct& p, int rows) {
  constexpr int kFewClusters = 2, kSome = 32;  // tiles: clusters have work for all their threads
  const int blocks = cuda::padded_to(p.in, cuda::kBlock) / cuda::kBlock;
  const cuda::ProductGeometry whole = cuda::product_geometry(p.storage, p.tiles, blocks, rows);
  const int clusters = whole.cluster ? static_cast<int>(whole.grid_x) / cuda::kSlices : 0;
  const int usual_clusters =
      std::exchange(cuda::clusters_together(), kFewClusters * static_cast<int>(whole.grid_y));
  const int64_t usual_small = std::exchange(cuda::small_matrix(), 0);
  CountedProduct part = p;
  part.tiles = kSome;
  const Counts once = count_product(part, rows);
  part.tiles = 2 * kSome;
  const Counts twice = count_product(part, rows);
  cuda::clusters_together() = usual_clusters, cuda::small_matrix() = usual_small;

  Counts all;
  for (const auto figure : emulator::traffic::kFigures) {
    const uint64_t of_some = twice.*figure - once.*figure, beside = once.*figure - of_some;
    all.*figure = of_some * static_cast<uint64_t>(p.tiles) / kSome;
    // Different sectors are the same for all clusters, whatever else they ask for is not.
    const bool different = figure == &Counts::read || figure == &Counts::written ||
                           figure == &Counts::lasting || figure == &Counts::again;
    all.*figure += different || clusters == 0
                       ? beside
                       : beside * static_cast<uint64_t>(clusters) / kFewClusters;
  }
  return all;
}

std::vector<CountedProduct> layer_products(const ModelConfig& c, WeightFormat format) {
  const WeightStorage s = with_offsets(spec_of(format).layers);
  const auto tiles = [](int outputs) { return outputs / cuda::kTile; };
  return {{s, tiles(c.q_dim() + 2 * c.kv_dim()), c.d_model, CountedProduct::kWritten},
          {s, tiles(c.d_model), c.q_dim(), CountedProduct::kAdded},
          {s, tiles(2 * c.d_ffn), c.d_model, CountedProduct::kActivated},
          {s, tiles(c.d_model), c.d_ffn, CountedProduct::kAdded}};
}

}  // namespace evalrun::engine::gpu_report
