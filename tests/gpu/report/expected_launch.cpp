#include "tests/gpu/report/expected_launch.h"

#include <fmt/format.h>

#include <algorithm>

namespace evalrun::engine::gpu_report {
namespace {

double cycles_per_us(const GpuFacts& gpu) { return gpu.ghz * 1e3; }
double cycles_before(const Way& way) {
  return kSerialCycles * way.before + kDramCycles * way.dram_before + kL2Cycles * way.l2_before;
}
double cycles_after(const Way& way) {
  return kSerialCycles * way.after + kDramCycles * way.dram + kL2Cycles * way.l2;
}
double instructions_per_us(const GpuFacts& gpu) {
  return gpu.multiprocessors * kIssueSlots * cycles_per_us(gpu);
}

// "4 * 650 + 700 * 16 + 280", without what is none.
std::string way_text(double instructions, int dram, int l2) {
  std::string text = fmt::format("{:g} * {:.0f}", kSerialCycles, instructions);
  const auto trips = [&](double cycles, int n) {
    if (n > 0)
      text += n == 1 ? fmt::format(" + {:g}", cycles) : fmt::format(" + {:g} * {}", cycles, n);
  };
  trips(kDramCycles, dram), trips(kL2Cycles, l2);
  return text;
}
// At most three digits after the point, and no zeros there that say nothing.
std::string short_number(double x) {
  std::string text = fmt::format("{:.3f}", x);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

ExpectedKernel launch_of(const char* kernel, const char* what, int launches, double blocks,
                         const Way& way, double bytes, double instructions, double flops,
                         const GpuFacts& gpu) {
  ExpectedKernel k{kernel, what, launches, bytes, instructions, flops, 0, 0, "", way};
  const double sms = gpu.multiprocessors;
  const double by_bytes = bytes / gpu.read_bytes_per_s * 1e6,
               by_instructions = instructions / instructions_per_us(gpu),
               by_tensor_cores =
                   gpu.flops_per_s > 0 ? flops / (kMmaShare * gpu.flops_per_s) * 1e6 : 0;
  const double work = std::max({by_bytes, by_instructions, by_tensor_cores});
  k.bound = work == by_bytes ? "bytes" : work == by_instructions ? "instructions" : "tensor cores";
  // Of the first blocks alone what comes before the wait is hidden by the kernel before.
  const double waves = blocks / (sms * way.resident);
  k.times = std::max(1.0, waves / way.resident);
  const double before = cycles_before(way), all = k.times * (before + cycles_after(way));
  k.alone_us = kStartUs + all / cycles_per_us(gpu) + work;
  k.in_graph_us =
      gpu.overlaps ? kOverlappedStartUs + (all - before) / cycles_per_us(gpu) + work : k.alone_us;
  return k;
}

std::string arithmetic_of(const ExpectedKernel& k, const GpuFacts& gpu) {
  const Way& w = k.way;
  const bool hidden = gpu.overlaps && cycles_before(w) > 0;
  std::string cycles;
  if (k.times == 1)
    cycles = hidden ? way_text(w.after, w.dram, w.l2)
                    : way_text(w.before + w.after, w.dram_before + w.dram, w.l2_before + w.l2);
  else
    cycles = fmt::format("{} * ({})", short_number(k.times),
                         way_text(w.before + w.after, w.dram_before + w.dram, w.l2_before + w.l2));
  if (k.times != 1 && hidden)
    cycles += fmt::format(" - ({})", way_text(w.before, w.dram_before, w.l2_before));
  // Megabytes by TB/s; millions of instructions, or billions of operations, by those of a us.
  double amount = k.bytes / 1e6, rate = gpu.read_bytes_per_s / 1e12;
  if (k.bound == "instructions")
    amount = k.instructions / 1e6, rate = instructions_per_us(gpu) / 1e6;
  else if (k.bound == "tensor cores")
    amount = k.flops / 1e9, rate = kMmaShare * gpu.flops_per_s / 1e15;
  const std::string work =
      k.loop_instructions > 0
          ? fmt::format("({}) / {:g}", way_text(k.loop_instructions, 0, k.loop_l2),
                        cycles_per_us(gpu))
          : fmt::format("{} / {:.3g}", short_number(amount), rate);
  return fmt::format("{:g} + ({}) / {:g} + {}", gpu.overlaps ? kOverlappedStartUs : kStartUs,
                     cycles, cycles_per_us(gpu), work);
}

}  // namespace evalrun::engine::gpu_report
