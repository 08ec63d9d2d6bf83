// gpu_traffic: what the kernels of a step ask of memory, counted on the emulated device from the
// addresses of their accesses (emulator/traffic.h), as Markdown. Needs no GPU and measures no time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/on_path.h"
#include "tests/gpu/report/program.h"
#include "tests/gpu/report/traffic.h"

namespace evalrun::engine::gpu_report {
namespace {

namespace traffic = emulator::traffic;

constexpr const char* kUsage = R"(usage: gpu_traffic [--lines] [--tiny | SHAPE] [ROWS...]
       gpu_traffic --products SHAPE [ROWS...]

  SHAPE   one of those that gpu_report measures, "SmolLM2-135M bf16"; without it all
  ROWS    rows of a step (default 1 16 64), a tree after a context of 512
  --tiny  shapes of a few kilobytes, to try the program
  --lines the lines of code, too, that ask for more than they need
  --products  of one layer's products alone, by either path (EVALRUN_CUDA_PATH): seconds

Kernels of Hopper: EVALRUN_CUDA_PATH=hopper CUDA_EMULATOR_CAPABILITY=90. A grid may depend on the
number of multiprocessors: CUDA_EMULATOR_MULTIPROCESSORS=132.
)";

using traffic::Counts;
struct Kernel {
  std::string name;
  uint64_t launches = 0;
  Counts counts;
};
// Each figure of a forward is a + b times its layers: all of them from one and two.
struct Step {
  std::vector<Kernel> kernels;
  uint64_t floor = 0;
};
Step whole_step(Shape shape, int rows, int context) {
  const auto more_layers = static_cast<uint64_t>(shape.config.n_layers - 1);
  shape.config.n_layers = 1;
  StepTraffic one = count_step(shape, rows, context);
  shape.config.n_layers = 2;
  const StepTraffic two = count_step(shape, rows, context);
  const auto of_all = [&](uint64_t a, uint64_t b) {
    EVALRUN_CHECK(b >= a, "two layers ask for less than one");
    return a + more_layers * (b - a);
  };
  Step step;
  step.floor = of_all(one.floor, two.floor);
  for (const auto& [name, t] : two.kernels) {
    const KernelTraffic& before = one.kernels[name];
    Kernel k{name,
             of_all(static_cast<uint64_t>(before.launches), static_cast<uint64_t>(t.launches)),
             {}};
    for (const auto figure : traffic::kFigures)
      k.counts.*figure = of_all(before.counts.*figure, t.counts.*figure);
    step.kernels.push_back(std::move(k));
  }
  std::sort(step.kernels.begin(), step.kernels.end(),
            [](const Kernel& x, const Kernel& y) { return x.counts.read > y.counts.read; });
  return step;
}

std::string share(uint64_t least, uint64_t actual) {
  return actual == 0 ? "-"
                     : fmt::format("{:.0f} %",
                                   100 * static_cast<double>(least) / static_cast<double>(actual));
}

void print(const Shape& shape, int rows, int context) {
  const auto start = std::chrono::steady_clock::now();
  const Step step = whole_step(shape, rows, context);
  std::printf(
      "\n%s, %d row%s, context %d\n\n| kernel | launches | read, MB | weights, keys, values | "
      "activations | partial sums | written, MB | asked of caches, MB | of it needed | by bulk "
      "copies, MB | shared memory, MB | to other blocks, MB | turns of shared memory, M | of them "
      "needed |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      shape.name.c_str(), rows, rows == 1 ? "" : "s", context);
  const auto line = [](const std::string& name, uint64_t launches, const Counts& c) {
    const auto mb = [](uint64_t bytes) {
      return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6);
    };
    fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.3f} | {} |\n",
               name, launches, mb(c.read), mb(c.lasting), mb(c.read - c.lasting - c.again),
               mb(c.again), mb(c.written), mb(c.sectors * 32), share(c.sectors_least, c.sectors),
               mb(c.bulk), mb(c.shared), mb(c.cluster), static_cast<double>(c.wavefronts) / 1e6,
               share(c.wavefronts_least, c.wavefronts));
  };
  Counts all;
  uint64_t launches = 0;
  for (const Kernel& k : step.kernels) {
    line("`" + k.name + "`", k.launches, k.counts);
    all += k.counts, launches += k.launches;
  }
  line("all", launches, all);
  std::printf("\nRead: %.4f times the weights, keys and values (%.2f MB).\n",
              static_cast<double>(all.read) / static_cast<double>(step.floor),
              static_cast<double>(step.floor) / 1e6);
  std::fflush(stdout);
  std::fprintf(stderr, "%s, %d rows: %.0f s\n", shape.name.c_str(), rows,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

// The four products of a layer, by the kernels of every GPU and by those of Hopper.
void print_products(const Shape& shape, const std::vector<int>& all_rows) {
  std::printf(
      "\nProducts of one layer of %s, MB\n\n| rows | path | weights | of them read | activations "
      "read | partial sums, written and read | written in all | asked of caches | by bulk copies | "
      "shared memory | to other blocks | turns of shared memory, M | of them needed |\n"
      "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      shape.name.c_str());
  for (const int rows : all_rows)
    for (const cuda::ProductPath path :
         {cuda::ProductPath::kPortable, cuda::ProductPath::kHopper}) {
      const cuda::testing::OnPath on(path);
      cuda::prepare_products();
      Counts c;
      uint64_t weights = 0;
      for (const CountedProduct& p : layer_products(shape.config, shape.format)) {
        c += count_large_product(p, rows);
        weights += p.weight_bytes();
      }
      const auto mb = [](uint64_t bytes) {
        return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6);
      };
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} | {} |\n", rows,
                 name_of(path), mb(weights), mb(c.lasting), mb(c.read - c.lasting - c.again),
                 mb(c.again), mb(c.written), mb(c.sectors * 32), mb(c.bulk), mb(c.shared),
                 mb(c.cluster), static_cast<double>(c.wavefronts) / 1e6,
                 share(c.wavefronts_least, c.wavefronts));
      std::fflush(stdout);
    }
}

int run(const std::vector<std::string>& arguments) {
  bool tiny = false, lines = false, products = false;
  std::string only;
  std::vector<int> rows;
  for (const std::string& a : arguments) {
    if (a == "--tiny") {
      tiny = true;
    } else if (a == "--lines") {
      lines = true;
    } else if (a == "--products") {
      products = true;
    } else if (a.find_first_not_of("0123456789") == std::string::npos && !a.empty()) {
      if (a.size() > 3 || std::stoi(a) < 1 || std::stoi(a) > 512)
        throw base::usage_error(fmt::format("ROWS: '{}' is not from 1 to 512", a), kUsage);
      rows.push_back(std::stoi(a));
    } else if (only.empty() && a.rfind("--", 0) != 0) {
      only = a;
    } else {
      throw base::usage_error(fmt::format("unknown argument '{}'", a), kUsage);
    }
  }
  if (rows.empty()) rows = tiny ? std::vector<int>{1, 17} : std::vector<int>{1, 16, 64};
  emulator::set_device_memory(size_t{16} << 30);
  std::vector<Shape> shapes = report_shapes(tiny);
  std::string names;
  for (const Shape& shape : shapes) names += (names.empty() ? "" : ", ") + shape.name;
  if (!only.empty()) std::erase_if(shapes, [&](const Shape& shape) { return shape.name != only; });
  if (shapes.empty())
    throw base::usage_error(fmt::format("SHAPE: no '{}'; there are {}", only, names), kUsage);
  if (products) {
    for (const Shape& shape : shapes) print_products(shape, rows);
    return 0;
  }
  for (const Shape& shape : shapes)
    for (const int n : rows) print(shape, n, tiny ? 70 : 512);
  if (lines) {
    const auto list = [](const char* what, const std::vector<traffic::Line>& of) {
      std::printf("\n%s\n", what);
      for (const traffic::Line& l : of)
        std::printf("%.3f M, needed %.3f M\n%s\n", static_cast<double>(l.asked) / 1e6,
                    static_cast<double>(l.least) / 1e6, l.code.c_str());
    };
    list("Sectors", traffic::lines_of_sectors(10));
    list("Turns of shared memory", traffic::lines_of_wavefronts(10));
  }
  return 0;
}

}  // namespace
}  // namespace evalrun::engine::gpu_report

int main(int argc, char** argv) {
  using namespace evalrun::engine::gpu_report;
  return run_program(argc, argv, kUsage, run);
}
