#include "tests/gpu/report/expected_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/cuda/kernels/all_layers.h"
#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/product_path.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {
namespace {

// Warp instructions for 32 inputs of 16 outputs, by fragments of eight rows.
double loop_instructions(WeightStorage storage, bool across, int fragments) {
  using enum WeightStorage;
  const auto of = [&](double one, double two, double four, double eight) {
    return fragments <= 1 ? one : fragments <= 2 ? two : fragments <= 4 ? four : eight;
  };
  switch (storage) {
    case kBf16:
      return across ? of(0, 52.75, 74.25, 120.75) : of(51, 65.5, 88, 0);
    case kInt8Channel:
      return across ? of(0, 72.5, 75.5, 0) : of(64, 73, 85, 0);
    case kInt8Group:
      return across ? of(0, 88.5, 97.5, 140) : of(73.75, 86.25, 106.25, 0);
    default:  // q4, whatever its offsets
      return across ? of(0, 111, 121.5, 0) : of(63, 80.5, 114.5, 0);
  }
}

Way narrow_way(WeightStorage storage, int fragments) {
  const bool bf16 = storage == WeightStorage::kBf16;
  return {.before = bf16 ? 226.0 : 170.0,
          .after = fragments <= 1   ? 220.0
                   : fragments <= 2 ? 260.0
                                    : 490.0,
          .dram_before = 1,  // the first weights
          .l2 = 2,           // inputs; what is added to
          .resident = fragments > 1 ? 2
                      : bf16        ? 3
                                    : 4};
}
// A quarter of the blocks, the last of their places, finish: 800 instructions for two fragments.
Way wide_way(WeightStorage storage, int fragments) {
  const bool bf16 = storage == WeightStorage::kBf16;
  return {.before = bf16 ? 409.0 : 220.0,
          .after = (bf16 ? 690.0 : 400.0) + 800.0 / 4 * fragments / 2,
          .dram_before = 1,
          .l2 = 4,  // inputs, quarters written, the counter, quarters read
          .resident = bf16 ? 1 : 2};
}

ExpectedKernel product(const char* what, int launches, WeightStorage storage, int out, int in,
                       int rows, double result_bytes, const GpuFacts& gpu) {
  const int tiles = (out + 15) / 16, blocks = (in + 31) / 32;
  // Whatever path this process takes.
  const auto path = std::exchange(cuda::product_path(), cuda::ProductPath::kPortable);
  const cuda::ProductGeometry g = cuda::product_geometry(storage, tiles, blocks, rows);
  cuda::product_path() = path;
  const int fragments = g.tile_rows / 8;
  const double row_tiles = ceil_of(rows, g.tile_rows);
  const double tile_blocks = static_cast<double>(tiles) * blocks;
  // Weights once: thread blocks of other rows stand beside each other and find them in the L2.
  double bytes = static_cast<double>(WeightMatrix::bytes_for(storage, out, in)) + 2.0 * rows * in +
                 result_bytes * rows * out;
  if (g.across) bytes += 2.0 * cuda::kQuarters * sizeof(float) * rows * out;
  return launch_of(g.across ? "wide_product" : "narrow_product", what, launches,
                   static_cast<double>(g.grid_x) * g.grid_y * g.grid_z,
                   g.across ? wide_way(storage, fragments) : narrow_way(storage, fragments), bytes,
                   tile_blocks * row_tiles * loop_instructions(storage, g.across, fragments),
                   2.0 * 16 * 32 * 8 * tile_blocks * row_tiles * fragments, gpu);
}

}  // namespace

std::vector<GpuFacts> known_gpus() {
  return {{"H200", 132, 1.98, 4.48e12, 780e12, true},
          {"H100 SXM", 132, 1.98, 0.93 * 3.35e12, 989e12, true},
          {"A100 SXM 80 GB", 108, 1.41, 0.93 * 2.04e12, 312e12, false}};
}

double ExpectedStep::alone_us() const {
  double us = 0;
  for (const ExpectedKernel& k : kernels) us += k.launches * k.alone_us;
  return us;
}
double ExpectedStep::in_graph_us() const {
  double us = 0;
  for (const ExpectedKernel& k : kernels) us += k.launches * k.in_graph_us;
  return us;
}
double ExpectedStep::alone_us(std::string_view kernel) const {
  double us = 0;
  for (const ExpectedKernel& k : kernels)
    if (k.kernel == kernel) us += k.launches * k.alone_us;
  return us;
}

ExpectedStep expected_step(const ModelConfig& c, WeightFormat format, int rows, int context,
                           const GpuFacts& gpu) {
  ExpectedStep step;
  const WeightFormatSpec& spec = spec_of(format);
  if (spec.layers == WeightStorage::kF32) return step;
  auto& k = step.kernels;
  const int layers = c.n_layers, qkv = c.q_dim() + 2 * c.kv_dim();
  const auto small = [&](const char* kernel, const char* what, int launches, double blocks,
                         double warps, const Way& way, double bytes) {
    k.push_back(launch_of(kernel, what, launches, blocks, way, bytes,
                          blocks * warps * (way.before + way.after), 0, gpu));
  };
  const double n = rows, wide = c.d_model;
  small("embed", "token rows", 1, n * ceil_of(wide, 1024), 8,
        {.after = 300, .dram = 2, .resident = 8}, 6 * n * wide);
  const Way norm = wide <= 1024   ? Way{.before = 25, .after = 276, .dram_before = 1, .l2 = 1}
                   : wide <= 4096 ? Way{.before = 80, .after = 534, .dram_before = 1, .l2 = 1}
                                  : Way{.before = 153, .after = 873, .dram_before = 1, .l2 = 1};
  small("norm", "norms", 2 * layers + 1, n, 8, norm, 4 * wide + 6 * n * wide);
  k.push_back(product("q, k and v", layers, spec.layers, qkv, c.d_model, rows, 4, gpu));
  const double heads = c.n_heads, kv_heads = c.n_kv_heads, dim = c.head_dim;
  small("rotate", "rotary embedding", layers, n * (heads + 2 * kv_heads), 2,
        {.after = 300, .dram = 1, .l2 = 2, .resident = 16}, 6 * n * qkv);
  // An item is a chunk of 128 keys with 16 queries that share a head of keys, or a row's own keys.
  const double chunks = ceil_of(context, 128), tiles = ceil_of(n * heads / kv_heads, 16);
  const double items = chunks * tiles + n, slots = chunks + 1;
  const double segment = dim <= 32 ? 900 : dim <= 64 ? 1100 : dim <= 128 ? 1600 : 2100;
  const double partial = n * heads * slots * (dim + 2) * 4;
  k.push_back(launch_of("attend_chunk", "chunks of keys", layers, items * kv_heads,
                        {.after = segment, .dram = 2, .l2 = 3, .resident = 3},
                        4 * context * kv_heads * dim + partial,
                        kv_heads * (4 * chunks * tiles + n) * segment,
                        4 * 16.0 * 128 * dim * chunks * tiles * kv_heads, gpu));
  // 34 instructions more for each chunk after the eighth. Their loads come before them.
  small("merge_chunks", "chunks to rows", layers, n * heads, std::max(1.0, dim / 64),
        {.after = 600 + 34 * std::max(0.0, slots - 8), .l2 = 3, .resident = 16},
        partial + 2 * n * heads * dim);
  k.push_back(product("o", layers, spec.layers, c.d_model, c.q_dim(), rows, 8, gpu));
  k.push_back(product("gate and up", layers, spec.layers, 2 * c.d_ffn, c.d_model, rows, 1, gpu));
  k.push_back(product("down", layers, spec.layers, c.d_model, c.d_ffn, rows, 8, gpu));
  k.push_back(product("head", 1, spec.head, c.n_logits(), c.d_model, rows, 4, gpu));
  const double groups = n * ceil_of(c.n_logits(), 2048);
  small("best_of_groups", "likeliest tokens", 1, groups, 8, {.after = 396, .l2 = 2, .resident = 4},
        4 * n * c.n_logits());
  small("best_of_found", "likeliest tokens", 1, n, 8, {.after = 418, .l2 = 2}, 0);
  return step;
}

namespace {

// By what all_layers takes of a published shape; what else it asks of a model, these have.
bool goes_at_once(const ModelConfig& c, WeightFormat format, int rows) {
  const auto fits = [](int64_t out, int64_t in) { return out * in <= cuda::kMostLayerWeights; };
  return spec_of(format).layers != WeightStorage::kF32 && rows <= cuda::kMostLayerRows &&
         c.d_model <= cuda::kMostLayerWidth && !c.qk_norm && c.sliding_window == 0 &&
         cuda::head_items(c.head_dim, c.n_heads, c.n_kv_heads).tiles > 0 &&
         fits(c.q_dim() + 2 * c.kv_dim(), c.d_model) && fits(2 * c.d_ffn, c.d_model);
}

}  // namespace

std::vector<ExpectedPhase> expected_phases(const ModelConfig& c, WeightFormat format, int rows,
                                           int context, const GpuFacts& gpu, double barrier_us) {
  std::vector<ExpectedPhase> phases;
  if (!goes_at_once(c, format, rows)) return phases;
  const double cycles_per_us = gpu.ghz * 1e3, blocks = gpu.multiprocessors;
  const auto add = [&](const char* what, double instructions, int dram, int l2, double bytes = 0) {
    phases.push_back(
        {what,
         barrier_us +
             (kSerialCycles * instructions + kDramCycles * dram + kL2Cycles * l2) / cycles_per_us +
             bytes / gpu.read_bytes_per_s * 1e6});
  };
  const WeightStorage storage = spec_of(format).layers;
  const double after = narrow_way(storage, rows <= 8 ? 1 : 2).after;
  const double norm = 276 * ceil_of(rows, 4);
  // Tiles of a thread block one after the other. The first one's weights are in shared memory, the
  // second one's in the L2.
  const auto multiply = [&](const char* what, int out, int in, double of_item, double more,
                            int trips) {
    const double tiles = ceil_of(out, 16), items = ceil_of(tiles, of_item);
    const double turns = ceil_of(items, blocks) * of_item;
    const double held = std::min(tiles, std::min(items, blocks) * std::min(turns, 2.0));
    add(what, more + turns * after, static_cast<int>(std::max(0.0, turns - 2)),
        trips + (turns > 1 ? 1 : 0),
        (tiles - held) / tiles * static_cast<double>(WeightMatrix::bytes_for(storage, out, in)));
  };
  const cuda::HeadItems cut = cuda::head_items(c.head_dim, c.n_heads, c.n_kv_heads);
  const double n = rows, heads = c.n_heads, kv_heads = c.n_kv_heads;
  multiply("norm, q k v, rotation", c.q_dim() + 2 * c.kv_dim(), c.d_model, cut.tiles, norm + 60, 1);
  const double items = (ceil_of(context, 128) * ceil_of(n * heads / kv_heads, 16) + n) * kv_heads;
  const double turns = ceil_of(items, 2 * blocks);
  add("chunks of keys", turns * (c.head_dim <= 32 ? 900 : 1100), static_cast<int>(turns) * 2, 1);
  const double merges = ceil_of(n * heads, 8 * blocks);
  add("chunks to rows", merges * 600, 0, static_cast<int>(merges) * 2);
  multiply("o", c.d_model, c.q_dim(), 1, 0, 1);
  multiply("norm, gate and up", 2 * c.d_ffn, c.d_model, 1, norm, 1);
  multiply("down", c.d_model, c.d_ffn, 1, 0, 1);
  return phases;
}

double expected_persistent_us(const ModelConfig& c, WeightFormat format, int rows, int context,
                              const GpuFacts& gpu, double barrier_us) {
  double layer = 0;
  for (const ExpectedPhase& phase : expected_phases(c, format, rows, context, gpu, barrier_us))
    layer += phase.us;
  if (layer == 0) return 0;
  double us = kStartUs + c.n_layers * layer;  // it does not overlap
  for (const ExpectedKernel& k : expected_step(c, format, rows, context, gpu).kernels) {
    // Before the layers, and after.
    if (k.launches == 1) us += k.in_graph_us;
    if (k.kernel == "norm") us += k.in_graph_us;
  }
  return us;
}

std::string expected_tables() {
  const std::vector<GpuFacts> gpus = known_gpus();
  std::string out = "| step, context 512 |";
  for (const GpuFacts& gpu : gpus) out += fmt::format(" {} |", gpu.name);
  out += "\n|---|";
  for (size_t i = 0; i < gpus.size(); ++i) out += "--:|";
  out += '\n';
  for (const Shape& shape : planned_shapes()) {
    if (shape.config.name == "Llama-3-8B") continue;
    for (const int rows : {1, 16, 64}) {
      out += fmt::format("| {}, {} row{} |", shape.name, rows, rows == 1 ? "" : "s");
      for (const GpuFacts& gpu : gpus)
        out += fmt::format(
            " {:.2f} ms |",
            expected_step(shape.config, shape.format, rows, 512, gpu).in_graph_us() / 1e3);
      out += '\n';
    }
  }
  const GpuFacts& h200 = gpus[0];
  out +=
      "\n| layers by one kernel, H200, context 512 | separate launches | barrier of 1.1 us | 0.6 "
      "us "
      "|\n|---|--:|--:|--:|\n";
  std::string phases = "\n| a layer of SmolLM2-135M, H200, us with the barrier |";
  std::vector<std::vector<ExpectedPhase>> of_layer;
  for (const Shape& shape : planned_shapes())
    for (const int rows : {1, 16}) {
      const auto us = [&](double barrier) {
        return expected_persistent_us(shape.config, shape.format, rows, 512, h200, barrier);
      };
      if (us(kGridBarrierUs) == 0) continue;
      const std::string name = fmt::format("{}, {} row{}", shape.name, rows, rows == 1 ? "" : "s");
      out += fmt::format(
          "| {} | {:.2f} ms | {:.2f} ms | {:.2f} ms |\n", name,
          expected_step(shape.config, shape.format, rows, 512, h200).in_graph_us() / 1e3,
          us(kGridBarrierUs) / 1e3, us(0.6) / 1e3);
      if (shape.format != WeightFormat::kBf16) continue;
      phases += fmt::format(" bf16, {} row{} |", rows, rows == 1 ? "" : "s");
      of_layer.push_back(expected_phases(shape.config, shape.format, rows, 512, h200));
    }
  phases += "\n|---|";
  for (size_t i = 0; i < of_layer.size(); ++i) phases += "--:|";
  phases += '\n';
  for (size_t i = 0; i < of_layer[0].size(); ++i) {
    phases += fmt::format("| {} |", of_layer[0][i].what);
    for (const auto& layer : of_layer) phases += fmt::format(" {:.1f} |", layer[i].us);
    phases += '\n';
  }
  out += phases;
  out += "\n| Llama-2-7B, H200, us a launch |";
  const std::vector<Shape> shapes = planned_shapes();
  std::vector<ExpectedStep> steps;
  for (const Shape& shape : shapes)
    for (const int rows : {1, 64})
      if (shape.config.name == "Llama-2-7B") {
        out += fmt::format(" {}, {} row{} |", engine::name_of(shape.format), rows,
                           rows == 1 ? "" : "s");
        steps.push_back(expected_step(shape.config, shape.format, rows, 512, gpus[0]));
      }
  out += "\n|---|";
  for (size_t i = 0; i < steps.size(); ++i) out += "--:|";
  out += '\n';
  for (size_t i = 0; i < steps[0].kernels.size(); ++i) {
    const ExpectedKernel& first = steps[0].kernels[i];
    out += fmt::format("| {} ({}) |", first.what, first.launches);
    for (const ExpectedStep& step : steps)
      out += fmt::format(" {:.1f}{} |", step.kernels[i].alone_us,
                         step.kernels[i].bound == "bytes"          ? ""
                         : step.kernels[i].bound == "instructions" ? " i"
                                                                   : " t");
    out += '\n';
  }
  return out;
}

}  // namespace evalrun::engine::gpu_report
