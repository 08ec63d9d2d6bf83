#include "tests/gpu/report/expected_hopper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/cuda/kernels/products.h"
#include "engine/cuda/runtime/product_path.h"
#include "tests/gpu/report/expected_launch.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {
namespace {

constexpr int kWarpgroupWarps = 4, kGroupOutputs = 64;
constexpr double kFasterCycles = 2;  // of the tables' other column

double by_width(int fragments, double one, double two, double four, double eight) {
  return fragments == 1 ? one : fragments == 2 ? two : fragments == 4 ? four : eight;
}
// Of a warp, for a block of 32 inputs of its 16 outputs.
double block_instructions(WeightStorage storage, int fragments) {
  switch (storage) {
    case WeightStorage::kBf16:
      return by_width(fragments, 34, 34, 34, 35);
    case WeightStorage::kInt8Channel:
    case WeightStorage::kInt8Group:
      return by_width(fragments, 75, 79, 87, 103);
    default:
      return by_width(fragments, 66, 74.5, 93, 128.5);
  }
}
constexpr double kStageInstructions = 50;  // beside its blocks: its turn, its mbarriers
// A copy is ten instructions, and lanes copy one after the other: of bf16 a piece of each of 64
// rows, of codes four tiles and their scales.
double copy_instructions(WeightStorage storage) {
  return storage == WeightStorage::kBf16 ? 70 + 10 * 64 : 65 + 10 * 8;
}
double end_instructions(int fragments) { return by_width(fragments, 165, 180, 195, 400); }
constexpr int kEndTrips = 3, kClusterBarrierTrips = 2;

cuda::ProductGeometry cut_for_clusters(WeightStorage storage, int tiles, int blocks, int rows,
                                       const GpuFacts& gpu) {
  const auto path = std::exchange(cuda::product_path(), cuda::ProductPath::kHopper);
  const int clusters =
      std::exchange(cuda::clusters_together(), std::max(1, gpu.multiprocessors / cuda::kSlices));
  const cuda::ProductGeometry g = cuda::product_geometry(storage, tiles, blocks, rows);
  cuda::product_path() = path, cuda::clusters_together() = clusters;
  return g;
}

// In place of `other`, which the other path launches.
ExpectedKernel product_in_clusters(const ExpectedKernel& other, WeightStorage storage, int out,
                                   int in, int rows, double result_bytes, const GpuFacts& gpu,
                                   double loop_cycles) {
  const int tiles = (out + 15) / 16, blocks = (in + 31) / 32;
  const cuda::ProductGeometry g = cut_for_clusters(storage, tiles, blocks, rows, gpu);
  if (!g.cluster) return other;
  const int fragments = g.tile_rows / 8, of_slice = cuda::slice_blocks_at_most(blocks);
  const double clusters = static_cast<double>(g.grid_x) / cuda::kSlices;
  // Of a warpgroup of the fullest thread block: 64 outputs each.
  const double turns = ceil_of(ceil_of(out, kGroupOutputs), clusters * g.groups);
  const double stages = turns * ceil_of(of_slice, g.stage_blocks);
  const double copying = stages * g.groups * copy_instructions(storage);
  const double multiplying =
      turns * of_slice * block_instructions(storage, fragments) + stages * kStageInstructions;
  const double ends = (turns - 1) * end_instructions(fragments);

  const double warps = static_cast<double>(g.groups) * kWarpgroupWarps;
  // Eight loads at a time, then each piece's stores; of offsets its sums, too.
  const double pieces = ceil_of(of_slice * fragments, warps), loads = ceil_of(pieces, 8);
  const bool sums = storage == WeightStorage::kQ4Group || storage == WeightStorage::kQ4Centred;
  const double inputs = fragments == 1 ? loads * 110 + pieces * (sums ? 15 : 8)
                                       : loads * 200 + pieces * (sums ? 20 : 11);
  // Before: what all have, four stages' mbarriers at a time, the rest of them and the cluster's
  // barrier, the first copies. After: what stands around the inputs, and the way out.
  const Way way = {.before = 75 + 22 * ceil_of(g.stages, 4) + 50 + 100,
                   .after = 100 + inputs + end_instructions(fragments) + 15,
                   .dram_before = 1,
                   .l2 = static_cast<int>(loads) + kEndTrips + kClusterBarrierTrips,
                   .l2_before = kClusterBarrierTrips};
  const double bytes = static_cast<double>(WeightMatrix::bytes_for(storage, out, in)) +
                       2.0 * rows * in + result_bytes * rows * out;
  const double fullest = static_cast<double>(gpu.multiprocessors) * turns * warps * of_slice;
  ExpectedKernel k = launch_of("hopper_product", other.what.c_str(), other.launches, 1, way, bytes,
                               gpu.multiprocessors * (warps * (multiplying + ends) + copying),
                               2.0 * 16 * 32 * 8 * fullest * fragments, gpu);
  const double cycles_per_us = gpu.ghz * 1e3;
  const double copying_us = loop_cycles * copying / cycles_per_us,
               multiplying_us = (loop_cycles * multiplying + kSerialCycles * ends +
                                 kL2Cycles * kEndTrips * (turns - 1)) /
                                cycles_per_us;
  const double loop_us = std::max(copying_us, multiplying_us);
  const double way_us = (kSerialCycles * (way.before + way.after) + kDramCycles +
                         kL2Cycles * (way.l2_before + way.l2)) /
                        cycles_per_us;
  const double more = loop_us - (k.alone_us - kStartUs - way_us);
  if (more <= 0) return k;
  k.alone_us += more, k.in_graph_us += more;
  k.bound = copying_us >= multiplying_us ? "copying warp" : "multiplying warps";
  // As many as take so long with four cycles each, which arithmetic_of() has.
  k.loop_instructions =
      loop_cycles / kSerialCycles * (copying_us >= multiplying_us ? copying : multiplying) +
      (copying_us >= multiplying_us ? 0 : ends);
  k.loop_l2 = copying_us >= multiplying_us ? 0 : kEndTrips * static_cast<int>(turns - 1);
  return k;
}

}  // namespace

ExpectedStep expected_hopper_step(const ModelConfig& c, WeightFormat format, int rows, int context,
                                  const GpuFacts& gpu, double loop_cycles) {
  ExpectedStep step = expected_step(c, format, rows, context, gpu);
  const WeightFormatSpec& spec = spec_of(format);
  for (ExpectedKernel& k : step.kernels) {
    const auto by = [&](WeightStorage storage, int out, int in, double result_bytes) {
      k = product_in_clusters(k, storage, out, in, rows, result_bytes, gpu, loop_cycles);
    };
    if (k.what == "q, k and v") by(spec.layers, c.q_dim() + 2 * c.kv_dim(), c.d_model, 4);
    if (k.what == "o") by(spec.layers, c.d_model, c.q_dim(), 8);
    if (k.what == "gate and up") by(spec.layers, 2 * c.d_ffn, c.d_model, 1);
    if (k.what == "down") by(spec.layers, c.d_model, c.d_ffn, 8);
    if (k.what == "head") by(spec.head, c.n_logits(), c.d_model, 4);
  }
  return step;
}

std::string expected_hopper_tables() {
  const GpuFacts h200 = known_gpus().front();
  constexpr int kRows[] = {1, 16, 64};
  struct Paths {
    std::string name;
    int rows = 0;
    ExpectedStep portable, hopper, faster, slower;
  };
  std::vector<Paths> steps;
  for (const Shape& shape : planned_shapes())
    for (const int rows : kRows) {
      if (shape.config.name != "Llama-2-7B") continue;
      const auto hopper = [&](double cycles) {
        return expected_hopper_step(shape.config, shape.format, rows, 512, h200, cycles);
      };
      steps.push_back(
          {fmt::format("{}, {} row{}", engine::name_of(shape.format), rows, rows == 1 ? "" : "s"),
           rows, expected_step(shape.config, shape.format, rows, 512, h200), hopper(0),
           hopper(kFasterCycles), hopper(kSerialCycles)});
    }
  std::string out =
      "| Llama-2-7B, H200, context 512 | goal | portable | hopper, loops free | loops of 2 cycles "
      "| of 4 cycles |\n|---|---|--:|--:|--:|--:|";
  const Paths* one = nullptr;
  for (const Paths& s : steps) {
    if (s.rows == 1) one = &s;
    out += fmt::format("\n| {} | {} |", s.name,
                       s.rows == 1    ? ""
                       : s.rows == 16 ? "T(16)/T(1) 1.08"
                                      : "T(64)/T(1) 1.15");
    for (ExpectedStep Paths::*of :
         {&Paths::portable, &Paths::hopper, &Paths::faster, &Paths::slower}) {
      const double us = (s.*of).in_graph_us();
      out += fmt::format(" {:.2f} ms", us / 1e3);
      if (s.rows > 1) out += fmt::format(", {:.2f}", us / (one->*of).in_graph_us());
      out += " |";
    }
  }
  out += "\n\n| us of one: portable, free, 4 cycles |";
  std::string line = "\n|---|";
  for (const Paths& s : steps) out += fmt::format(" {} |", s.name), line += "--:|";
  out += line;
  std::vector<size_t> products;
  for (size_t j = 0; j < steps[0].hopper.kernels.size(); ++j)
    if (steps[0].hopper.kernels[j].kernel == "hopper_product") products.push_back(j);
  for (const size_t j : products) {
    out += fmt::format("\n| {} ({}) |", steps[0].hopper.kernels[j].what,
                       steps[0].hopper.kernels[j].launches);
    for (const Paths& s : steps)
      out += fmt::format(" {:.1f}, {:.1f}, {:.1f} |", s.portable.kernels[j].in_graph_us,
                         s.hopper.kernels[j].in_graph_us, s.slower.kernels[j].in_graph_us);
  }
  out += "\n\n| a launch: loops free; of 4 cycles | 1 row | 16 rows | 64 rows |\n|---|---|---|---|";
  const auto sum = [&](const ExpectedKernel& k) {
    const char* letter = k.bound == "bytes"               ? ""
                         : k.bound == "copying warp"      ? " c"
                         : k.bound == "multiplying warps" ? " m"
                         : k.bound == "instructions"      ? " i"
                                                          : " t";
    return fmt::format("`{}` = {:.2f}{}", arithmetic_of(k, h200), k.in_graph_us, letter);
  };
  for (size_t i = 0; i < steps.size(); i += std::size(kRows))
    for (const size_t j : products) {
      const ExpectedKernel& k = steps[i].hopper.kernels[j];
      if (k.what == "head" && steps[i].name.starts_with("q4")) continue;  // that of int8
      out += fmt::format("\n| {} {} |", steps[i].name.substr(0, steps[i].name.find(',')), k.what);
      for (size_t r = i; r < i + std::size(kRows); ++r)
        out += fmt::format(" {}; {} |", sum(steps[r].hopper.kernels[j]),
                           sum(steps[r].slower.kernels[j]));
    }
  return out + '\n';
}

}  // namespace evalrun::engine::gpu_report
