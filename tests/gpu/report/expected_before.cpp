#include "tests/gpu/report/expected_before.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/cuda/kernels/products.h"
#include "tests/gpu/report/expected_launch.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {
namespace {

constexpr int kMostNarrowRows = 16, kMostWideRows = 64;
constexpr double kSmallMatrix = 1 << 21;  // weights; such ones were narrow whatever the rows

bool is_wide(int rows, double weights) { return rows > kMostNarrowRows && weights > kSmallMatrix; }

// A narrow block was one tile of 16 outputs. Its loop loaded four blocks of 32 inputs, waited for
// all of them, multiplied and began anew; inputs came with the weights. What is added to was read
// at the end. The waits between are not counted, as other blocks' bytes flow meanwhile.
ExpectedKernel narrow_before(const char* what, int launches, WeightStorage storage, int tiles,
                             int blocks, int rows, double bytes, const GpuFacts& gpu) {
  const bool bf16 = storage == WeightStorage::kBf16, two = rows > 8;
  // Of four blocks of inputs.
  const double loop = bf16                                   ? (two ? 174 : 115)
                      : storage == WeightStorage::kInt8Group ? (two ? 308 : 266)
                                                             : (two ? 297 : 239);
  const Way way = {.after = two ? 223.0 : 204.0,
                   .dram = 1,  // the first weights
                   .l2 = 1,    // what is added to
                   .resident = two    ? 2
                               : bf16 ? 3
                                      : 4};
  return launch_of("narrow_product", what, launches, tiles, way, bytes,
                   static_cast<double>(tiles) * blocks * loop / 4,
                   2.0 * 16 * 32 * 8 * tiles * blocks * (two ? 2 : 1), gpu);
}

// A wide block was eight tiles of 64 rows and a quarter of the inputs. A quarter of the blocks, the
// last of their places, finished: eight fragments of rows one after the other, each with a trip for
// the quarters and, where outputs are added to, four for these, as every store came before the next
// load.
ExpectedKernel wide_before(const char* what, int launches, int tiles, int blocks, int rows,
                           bool adds, double bytes, const GpuFacts& gpu) {
  constexpr double kLoop = 122.5;  // of a tile and a block of inputs
  constexpr int kFragments = kMostWideRows / 8;
  const Way way = {.after = 236 + 162 + (30 + 180.0 * kFragments) / 4,
                   .dram = 1,                                            // weights and inputs
                   .l2 = 1 + 1 + kFragments * (1 + (adds ? 4 : 0)) / 4,  // quarters, the counter
                   .resident = 2};
  const double places = ceil_of(tiles, 8), row_tiles = ceil_of(rows, kMostWideRows);
  return launch_of("wide_product", what, launches, row_tiles * places * cuda::kQuarters, way, bytes,
                   row_tiles * tiles * blocks * kLoop,
                   2.0 * 16 * 32 * kMostWideRows * row_tiles * tiles * blocks, gpu);
}

ExpectedKernel product_before(const char* what, int launches, WeightStorage storage, int out,
                              int in, int rows, double result_bytes, const GpuFacts& gpu) {
  const int tiles = (out + 15) / 16, blocks = (in + 31) / 32;
  double bytes = static_cast<double>(WeightMatrix::bytes_for(storage, out, in)) + 2.0 * rows * in +
                 result_bytes * rows * out;
  if (!is_wide(rows, 512.0 * tiles * blocks))
    return narrow_before(what, launches, storage, tiles, blocks, rows, bytes, gpu);
  bytes += 2.0 * cuda::kQuarters * sizeof(float) * rows * out;
  return wide_before(what, launches, tiles, blocks, rows, result_bytes == 8, bytes, gpu);
}

// A chunk of 128 keys for up to 16 queries that share them was a block of four warps. So was what a
// row sees of the request itself, whose values were read one by one, whether a warp had a key there
// or not.
ExpectedKernel attend_before(int launches, const ModelConfig& c, double n, double context,
                             double partial, const GpuFacts& gpu) {
  const double kv_heads = c.n_kv_heads, group = c.n_heads / kv_heads, dim = c.head_dim;
  const double chunks = ceil_of(context, 128), tiles = ceil_of(n * group, 16);
  const double factors = 237, exponentials = 320;  // of one warp; of warps with a key
  // Segments to a chunk's sum, 128 numbers at a time.
  const auto sums = [&](double queries) { return 80 * ceil_of(queries * dim, 128); };
  const double shared = (dim <= 64 ? 1499 : 1689) + sums(std::min(16.0, n * group)),
               own = (dim <= 64 ? 1926 : 2358) + sums(group);
  const double shared_blocks = chunks * tiles * kv_heads, own_blocks = n * kv_heads;
  const double bytes = 4 * context * kv_heads * dim + partial,
               instructions = shared_blocks * (4 * shared - 3 * factors) +
                              own_blocks * (4 * own - 3 * (factors + exponentials)),
               flops = 4 * 16.0 * 128 * dim * (shared_blocks + own_blocks);
  const int resident = dim <= 64 ? 4 : 3;
  const auto by = [&](double blocks, const Way& way) {
    return launch_of("attend_chunk", "chunks of keys", launches, blocks, way, bytes, instructions,
                     flops, gpu);
  };
  // Trips of the shared ones: header, item, row; keys in two parts, then values. Of a row's own:
  // the same three; where its keys lie; keys and values in two parts each.
  const ExpectedKernel a = by(shared_blocks + own_blocks,
                              {.after = shared, .dram = 3, .l2 = 3, .resident = resident}),
                       b = by(own_blocks, {.after = own, .l2 = 8, .resident = resident});
  return a.alone_us > b.alone_us ? a : b;
}

}  // namespace

ExpectedStep expected_step_before(const ModelConfig& c, WeightFormat format, int rows, int context,
                                  const GpuFacts& now) {
  ExpectedStep step;
  const WeightFormatSpec& spec = spec_of(format);
  if (spec.layers != WeightStorage::kBf16 && spec.layers != WeightStorage::kInt8Group &&
      spec.layers != WeightStorage::kQ4Group)
    return step;
  const bool of_one_kind =
      rows > 32 && rows <= kMostWideRows && spec.layers == WeightStorage::kBf16 &&
      spec.head == WeightStorage::kBf16 &&
      is_wide(rows, static_cast<double>(c.d_model) * std::min(c.d_model, c.q_dim()));
  if (rows > kMostNarrowRows && !of_one_kind) return step;
  GpuFacts gpu = now;
  gpu.overlaps = false;
  auto& k = step.kernels;
  const int layers = c.n_layers;
  const auto small = [&](const char* kernel, const char* what, int launches, double blocks,
                         double warps, const Way& way, double bytes) {
    k.push_back(
        launch_of(kernel, what, launches, blocks, way, bytes, blocks * warps * way.after, 0, gpu));
  };
  const double n = rows, wide = c.d_model;
  // Loops of 256 threads over a row. A turn's load waited for the store of the turn before.
  const int turns = (c.d_model + 255) / 256;
  small("embed", "token rows", 1, n, 8,
        {.after = 42.0 + 71 * turns, .dram = turns, .l2 = 2, .resident = 8}, 6 * n * wide);
  // The sum of squares loads four numbers at once, what is left one by one. The weights' lines are
  // the serial ones.
  small("norm", "norms", 2 * layers + 1, n, 8,
        {.after = 250.0 + 25 * turns, .dram = turns, .l2 = turns / 4 + turns % 4, .resident = 8},
        4 * wide + 6 * n * wide);
  const int qkv = c.q_dim() + 2 * c.kv_dim();
  k.push_back(product_before("q, k and v", layers, spec.layers, qkv, c.d_model, rows, 4, gpu));
  const double heads = c.n_heads, kv_heads = c.n_kv_heads, dim = c.head_dim;
  // Sums (64 threads), the position, the header; cosines and sines.
  small("rotate", "rotary embedding", layers, n * (heads + 2 * kv_heads), 2,
        {.after = 320, .dram = 1, .l2 = static_cast<int>(ceil_of(dim, 64)) + 2, .resident = 16},
        6 * n * qkv);
  const double slots = ceil_of(context, 128) + 1, partial = n * heads * slots * (dim + 2) * 4;
  k.push_back(attend_before(layers, c, n, context, partial, gpu));
  // Every thread looks through the chunks before one; values came eight chunks at a time.
  const double eights = ceil_of(slots, 8);
  small("merge_chunks", "chunks to rows", layers, n * heads, dim / 32,
        {.after = 250 + 54 * slots + 175 * eights,
         .l2 = 2 + static_cast<int>(eights),
         .resident = static_cast<int>(1280 / dim)},
        partial + 2 * n * heads * dim);
  k.push_back(product_before("o", layers, spec.layers, c.d_model, c.q_dim(), rows, 8, gpu));
  k.push_back(
      product_before("gate and up", layers, spec.layers, 2 * c.d_ffn, c.d_model, rows, 1, gpu));
  k.push_back(product_before("down", layers, spec.layers, c.d_model, c.d_ffn, rows, 8, gpu));
  k.push_back(product_before("head", 1, spec.head, c.n_logits(), c.d_model, rows, 4, gpu));
  // A thread loaded 32 logits one after the other.
  small("best_of_groups", "likeliest tokens", 1, n * ceil_of(c.n_logits(), 8192), 8,
        {.after = 766, .l2 = 32, .resident = 3}, 4 * n * c.n_logits());
  small("best_of_found", "likeliest tokens", 1, n, 8, {.after = 380, .l2 = 1}, 0);
  return step;
}

namespace {

// A line of the goals' table. `ratio`: the goal is a time over that of the first line.
struct GoalStep {
  const char *name, *model;
  WeightFormat format;
  int rows, context;
  const char* goal;
  bool ratio = false, attention = false;
};
const std::vector<GoalStep>& goal_steps() {
  using enum WeightFormat;
  static const std::vector<GoalStep> steps = {
      {"Llama-2-7B bf16, 1 row", "Llama-2-7B", kBf16, 1, 512, "3.30 ms"},
      {"Llama-2-7B int8, 1 row", "Llama-2-7B", kInt8, 1, 512, "1.90 ms"},
      {"Llama-2-7B q4, 1 row", "Llama-2-7B", kQ4, 1, 512, "1.33 ms"},
      {"Llama-2-7B bf16, 16 rows", "Llama-2-7B", kBf16, 16, 512, "T(16)/T(1) 1.08", true},
      {"Llama-2-7B bf16, 64 rows", "Llama-2-7B", kBf16, 64, 512, "T(64)/T(1) 1.15", true},
      {"SmolLM2-135M bf16, 1 row", "SmolLM2-135M", kBf16, 1, 512, "0.35 ms"},
      {"Llama-2-7B bf16, 1 row, context 8,192", "Llama-2-7B", kBf16, 1, 8192, "none"},
      {"its attention, launch by launch", "Llama-2-7B", kBf16, 1, 8192, "1.16 ms", false, true}};
  return steps;
}

// Attention alone is measured launch by launch, so that nothing overlaps there.
GpuFacts gpu_of(const GoalStep& s) {
  GpuFacts gpu = known_gpus().front();
  if (s.attention) gpu.overlaps = false;
  return gpu;
}
struct Pair {
  ExpectedStep before, after;
};
Pair pair_of(const GoalStep& s) {
  Pair p;
  for (const Shape& shape : planned_shapes())
    if (shape.config.name == s.model && shape.format == s.format) {
      p.before = expected_step_before(shape.config, s.format, s.rows, s.context, gpu_of(s));
      p.after = expected_step(shape.config, s.format, s.rows, s.context, gpu_of(s));
    }
  if (s.attention)
    for (ExpectedStep* step : {&p.before, &p.after})
      std::erase_if(step->kernels, [](const ExpectedKernel& k) {
        return k.kernel != "attend_chunk" && k.kernel != "merge_chunks";
      });
  return p;
}

}  // namespace

std::string before_and_after_tables() {
  const std::vector<GoalStep>& steps = goal_steps();
  std::vector<Pair> pairs;
  for (const GoalStep& s : steps) pairs.push_back(pair_of(s));
  std::string out = "| step, H200, context 512 | goal | before | after |\n|---|---|--:|--:|";
  for (size_t i = 0; i < steps.size(); ++i) {
    out += fmt::format("\n| {} | {} |", steps[i].name, steps[i].goal);
    for (ExpectedStep Pair::*of : {&Pair::before, &Pair::after}) {
      const double us = (pairs[i].*of).in_graph_us();
      out += fmt::format(" {:.2f} ms", us / 1e3);
      if (steps[i].ratio) out += fmt::format(", {:.2f}", us / (pairs[0].*of).in_graph_us());
      out += " |";
    }
  }
  out += "\n\n| us of a step, before > after |";
  std::string line = "\n|---|";
  for (const GoalStep& s : steps)
    if (s.context == 512) out += fmt::format(" {} |", s.name), line += "--:|";
  out += line;
  const auto row = [&](std::string name, const auto& us) {
    out += fmt::format("\n| {} |", name);
    for (size_t i = 0; i < steps.size(); ++i)
      if (steps[i].context == 512)
        out += fmt::format(" {:.0f} > {:.0f} |", us(pairs[i].before), us(pairs[i].after));
  };
  for (size_t j = 0; j < pairs[0].before.kernels.size(); ++j)
    row(pairs[0].before.kernels[j].what, [&](const ExpectedStep& step) {
      return step.kernels[j].launches * step.kernels[j].in_graph_us;
    });
  row("sum", [](const ExpectedStep& step) { return step.in_graph_us(); });

  out += "\n\n| launches | us of one, before | | us of one, after | |\n|---|---|--:|---|--:|";
  std::vector<std::string> first;  // of the first step, which others do not say again
  for (size_t i = 0; i < steps.size(); ++i) {
    const GpuFacts after = gpu_of(steps[i]);
    GpuFacts before = after;
    before.overlaps = false;
    out += fmt::format("\n| **{}** | | | | |", steps[i].name);
    for (size_t j = 0; j < pairs[i].before.kernels.size(); ++j) {
      const ExpectedKernel &b = pairs[i].before.kernels[j], &a = pairs[i].after.kernels[j];
      std::string text = fmt::format("\n| {} {} | `{}` | {:.2f} | `{}` | {:.2f} |", b.launches,
                                     b.what, arithmetic_of(b, before), b.in_graph_us,
                                     arithmetic_of(a, after), a.in_graph_us);
      if (i == 0 || std::find(first.begin(), first.end(), text) == first.end()) out += text;
      if (i == 0) first.push_back(std::move(text));
    }
  }
  return out + '\n';
}

}  // namespace evalrun::engine::gpu_report
