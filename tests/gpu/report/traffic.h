// What the kernels of one forward, or of a layer's products, ask of memory, counted on the emulated
// device (emulator/traffic.h) with kernels that tell their accesses.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/cuda/kernels/products.h"
#include "tests/gpu/emulator/traffic.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {

struct KernelTraffic {
  int launches = 0;
  emulator::traffic::Counts counts;
};
struct StepTraffic {
  std::map<std::string, KernelTraffic> kernels;  // by the names of their launches
  size_t floor = 0;  // bytes of all weights, and of the keys and values of the context
};

// A tree of `rows` after `context` tokens, the likeliest token of each asked for.
StepTraffic count_step(const Shape& shape, int rows, int context);

// One product y = W x, whose values are zeros: only addresses matter.
struct CountedProduct {
  WeightStorage storage;
  int tiles, in;  // outputs / 16, inputs
  // What becomes of the sums: written as they are, added to what is there, or two factors of half
  // as many outputs.
  enum Result { kWritten, kAdded, kActivated } result = kWritten;
  size_t weight_bytes() const;
};
emulator::traffic::Counts count_product(const CountedProduct& product, int rows);
// The same from two small parts of the outputs, for large matrices: what outputs ask for grows with
// their number, what thread blocks ask for by themselves with theirs (of hopper_product with its
// clusters). Tests hold it to count_product(). The product is not a small_matrix().
emulator::traffic::Counts count_large_product(const CountedProduct& product, int rows);

// Those of a layer: q, k and v; o; gate and up; down.
std::vector<CountedProduct> layer_products(const ModelConfig& config, WeightFormat format);

}  // namespace evalrun::engine::gpu_report
