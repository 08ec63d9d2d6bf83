// Which kernel a product takes, and how it is cut.
#include <algorithm>

#include "engine/cuda/kernels/product_parts.h"
#include "engine/cuda/runtime/product_path.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kBatchRows = 256;  // of one launch

unsigned cut(int n, int by) { return static_cast<unsigned>((n + by - 1) / by); }

void multiply_batch(const ProductArguments& a, const ProductWorkspace& workspace,
                    cudaStream_t stream) {
  const bool chain = a.w.storage == WeightStorage::kF32;
  // Of sums in turns a thread of a chain has both factors.
  const int tiles = chain && a.out.activated != nullptr ? a.w.tiles / 2 + a.w.tiles % 2 : a.w.tiles;
  const ProductGeometry g = product_geometry(a.w.storage, tiles, a.w.blocks, a.rows);
  if (chain) return launch_chain(a, g, stream);
  if (g.cluster) return launch_hopper(a, g, stream);
  if (g.across) return launch_wide(a, g, workspace, stream);
  launch_narrow(a, g, stream);
}

}  // namespace

ProductGeometry product_geometry(WeightStorage storage, int tiles, int blocks, int rows) {
  ProductGeometry g;
  g.grid_z = 1;
  if (storage == WeightStorage::kF32) {
    g.tile_rows = kChainRows;
    g.grid_x = cut(tiles * kTile, kChainOutputs);
    g.grid_y = cut(rows, kChainRows);
    g.batch_rows = kMaxProductRows;
    return g;
  }
  g.batch_rows = kBatchRows;
  const int n = std::min(rows, kBatchRows);
  if (product_path() == ProductPath::kHopper && hopper_geometry(storage, tiles, blocks, n, g))
    return g;
  g.across = rows > narrow_rows() && int64_t{kTile} * tiles * kBlock * blocks > small_matrix();
  const BlockShape block = g.across ? wide_block(storage, rows) : narrow_block(storage, rows);
  g.tile_rows = block.rows;
  g.shared_bytes = static_cast<size_t>(block.bytes);
  if (!g.across) {
    g.grid_x = static_cast<unsigned>(tiles);
    g.grid_y = cut(n, g.tile_rows);
    return g;
  }
  g.grid_x = cut(n, g.tile_rows);  // beside each other: they share the weights
  g.grid_y = cut(tiles, kProductWarps);
  g.grid_z = kQuarters;
  const size_t places = static_cast<size_t>(g.grid_x) * g.grid_y;
  g.workspace_bytes =
      places * kQuarters * static_cast<size_t>(g.tile_rows * kProductWarps * kTile) * 4;
  g.counter_bytes = places * sizeof(unsigned);
  return g;
}

int& narrow_rows() {
  static int rows = 16;
  return rows;
}

bool& large_shared_memory() {
  static bool large = false;
  return large;
}

int64_t& small_matrix() {
  static int64_t weights = int64_t{1} << 21;
  return weights;
}

bool ProductWorkspace::ensure(const ProductGeometry& g) {
  const bool moved = sums.ensure(g.workspace_bytes);
  return counters.ensure(g.counter_bytes) || moved;
}

void prepare_products() {
  int device = 0;
  cudaDeviceProp properties;
  EVALRUN_CUDA(cudaGetDevice(&device));
  EVALRUN_CUDA(cudaGetDeviceProperties(&properties, device));
  large_shared_memory() = properties.sharedMemPerBlockOptin >= size_t{200} << 10;
  check_product_path(properties.name, properties.major, properties.minor);
  allow_narrow_products();
  allow_wide_products();
  if (product_path() == ProductPath::kHopper) allow_hopper_products();
}

void multiply(const ProductArguments& a, const ProductWorkspace& workspace, cudaStream_t stream) {
  check_argument(a.rows >= 1 && a.w.tiles >= 1, "an empty product");
  const int batch = product_geometry(a.w.storage, a.w.tiles, a.w.blocks, a.rows).batch_rows;
  const bool f32 = a.w.storage == WeightStorage::kF32;
  const size_t x_row =
      f32 ? static_cast<size_t>(a.w.in) * 4 : static_cast<size_t>(a.w.blocks) * kBlock * 2;
  for (int first = 0; first < a.rows; first += batch) {
    ProductArguments part = a;
    part.rows = std::min(batch, a.rows - first);
    part.x = static_cast<const unsigned char*>(a.x) + static_cast<size_t>(first) * x_row;
    const size_t skip = static_cast<size_t>(first) * static_cast<size_t>(a.out.ldy);
    if (a.out.y != nullptr) part.out.y += skip;
    if (a.out.residual != nullptr) part.out.residual += skip;
    if (a.out.activated != nullptr)
      part.out.activated = static_cast<unsigned char*>(a.out.activated) + skip * (f32 ? 4 : 2);
    multiply_batch(part, workspace, stream);
  }
}

}  // namespace evalrun::engine::cuda
