// y = W x for few rows of x: decoding and verification.
//
// One reduction plan per matrix, whatever the number of rows: its blocks of 32 inputs are cut into
// eight slices; a slice is summed block by block on the tensor cores, from zero; neighbours are
// added to quarters, quarters in order. How many rows and outputs a thread block takes, and whether
// slices meet in one thread block or in memory, changes nothing about that, so a row's bits do not
// depend on the rows beside it. In kF32 an output is one chain of fused multiply-adds over its
// inputs, as on the CPU, and has the CPU's bits.
//
// With EVALRUN_CUDA_PATH=hopper all products but those of kF32 and K-quants take hopper_product,
// whatever the number of rows. Each wgmma adds up the very 16 inputs that an mma of the others
// does, so by the published model of Hopper's tensor cores (tests/gpu/tensor_cores.h) the bits are
// the same. What a GPU computes nobody has seen; no rule rests on it, since a matrix keeps to one
// kind of kernel.
//
// Inputs are bfloat16 (float32 for kF32), sums float32; codes of integer formats enter exactly,
// each block's sum is scaled in float32.
#pragma once
#include "engine/cuda/kernels/matrix_ref.h"
#include "engine/cuda/runtime/memory.h"

namespace evalrun::engine::cuda {

constexpr int kSlices = 8, kQuarters = 4;
constexpr int kMaxProductRows = 1024;

// Blocks [first, last) of a slice.
struct Slice {
  int first, last;
};
constexpr Slice slice_of(int blocks, int slice) {
  return {static_cast<int>(static_cast<long long>(blocks) * slice / kSlices),
          static_cast<int>(static_cast<long long>(blocks) * (slice + 1) / kSlices)};
}

// Of the longest slice.
constexpr int slice_blocks_at_most(int blocks) { return (blocks + kSlices - 1) / kSlices; }

// What becomes of the sums. One of y, residual and activated is set.
struct Epilogue {
  float* y = nullptr;  // [rows][ldy], outputs below `outputs`
  int ldy = 0;
  int outputs = 0;
  const float* bias = nullptr;  // [outputs of the device matrix], added to every row's sums
  float* residual = nullptr;    // [rows][ldy]: y is added to it
  void* activated = nullptr;  // [rows][ldy] silu(gate) * up of a matrix in turns, in the storage's
                              // input format; `outputs` = of one factor
};

struct ProductArguments {
  MatrixRef w;
  const void* x = nullptr;  // [rows][padded inputs] bfloat16, padding zero; [rows][in] float32
  int rows = 0;
  Epilogue out;
};

// How a product is cut into thread blocks, by its number of rows: host code, tested by itself.
struct ProductGeometry {
  int tile_rows = 0;     // rows a thread block takes
  bool across = false;   // quarters are computed by different thread blocks
  bool cluster = false;  // slices by those of a cluster: hopper_product
  unsigned grid_x = 0, grid_y = 0, grid_z = 0;
  size_t shared_bytes = 0;
  size_t workspace_bytes = 0, counter_bytes = 0;  // of a batch
  int batch_rows = 0;  // rows of one launch; more rows are several launches
  // hopper_product: its ring, and 64 outputs each that a thread block has at once.
  int stages = 0, stage_blocks = 0, groups = 0;
};
// `blocks`: of the inputs; kAnyBlocks is as many as take the most room.
constexpr int kAnyBlocks = 1 << 20;
ProductGeometry product_geometry(WeightStorage storage, int tiles, int blocks, int rows);

// Up to so many rows, and for matrices of at most so many weights, all slices of a tile meet in one
// thread block. With few rows the inputs are small beside the weights; for small matrices, bringing
// thread blocks together costs more than either. Neither changes a bit. Tests change them.
int& narrow_rows();
int64_t& small_matrix();
// Whether a thread block may have 200 KiB of shared memory; set by prepare_products().
bool& large_shared_memory();
// Clusters of hopper_product that the device runs at once; set by prepare_products() on that path.
int& clusters_together();

// Where quarters of products meet that are spread over thread blocks. Products of one stream share
// it.
struct ProductWorkspace {
  DeviceBuffer sums, counters;  // counters are zero between products
  // True when something moved.
  bool ensure(const ProductGeometry& geometry);
};

// Once per device, the current one, before the first product. usage_error when it cannot take
// product_path() (engine/cuda/runtime/product_path.h).
void prepare_products();

// What follows a product whose sums [rows][outputs of w] are known already (engine/cuda/dense.h).
void finish_sums(const ProductArguments& arguments, const float* sums, cudaStream_t stream);

// Queued on `stream`. `workspace`: ensured for product_geometry() of this product.
void multiply(const ProductArguments& arguments, const ProductWorkspace& workspace,
              cudaStream_t stream);

}  // namespace evalrun::engine::cuda
