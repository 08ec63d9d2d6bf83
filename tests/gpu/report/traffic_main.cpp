// gpu_traffic: what the kernels of a step ask of memory, counted on the emulated device from the
// addresses of their accesses (emulator/traffic.h), as Markdown. Needs no GPU and measures no time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/report/program.h"
#include "tests/gpu/report/traffic.h"

namespace evalrun::engine::gpu_report {
namespace {

namespace traffic = emulator::traffic;

constexpr const char* kUsage = R"(usage: gpu_traffic [--lines] [--tiny | SHAPE] [ROWS...]

  SHAPE   one of those that gpu_report measures, "SmolLM2-135M bf16"; without it all
  ROWS    rows of a step (default 1 16 64), a tree after a context of 512
  --tiny  shapes of a few kilobytes, to try the program
  --lines the lines of code, too, that ask for more than they need
)";

struct Kernel {
  std::string name;
  double launches = 0, read = 0, written = 0, sectors = 0, sectors_least = 0, wavefronts = 0,
         wavefronts_least = 0;
};
// Each figure of a forward is a + b times its layers: all of them from one and two.
struct Step {
  std::vector<Kernel> kernels;
  double floor = 0;
};
Step whole_step(Shape shape, int rows, int context) {
  const int layers = shape.config.n_layers;
  shape.config.n_layers = 1;
  StepTraffic one = count_step(shape, rows, context);
  shape.config.n_layers = 2;
  const StepTraffic two = count_step(shape, rows, context);
  const auto of_all = [&](auto a, auto b) {
    return static_cast<double>(a) +
           (layers - 1) * (static_cast<double>(b) - static_cast<double>(a));
  };
  Step step;
  step.floor = of_all(one.floor, two.floor);
  for (const auto& [name, t] : two.kernels) {
    const KernelTraffic& before = one.kernels[name];
    const traffic::Counts &a = before.counts, &b = t.counts;
    step.kernels.push_back({name, of_all(before.launches, t.launches), of_all(a.read, b.read),
                            of_all(a.written, b.written), of_all(a.sectors, b.sectors),
                            of_all(a.sectors_least, b.sectors_least),
                            of_all(a.wavefronts, b.wavefronts),
                            of_all(a.wavefronts_least, b.wavefronts_least)});
  }
  std::sort(step.kernels.begin(), step.kernels.end(),
            [](const Kernel& x, const Kernel& y) { return x.read > y.read; });
  return step;
}

std::string share(double least, double actual) {
  return actual == 0 ? "-" : fmt::format("{:.0f} %", 100 * least / actual);
}

void print(const Shape& shape, int rows, int context) {
  const auto start = std::chrono::steady_clock::now();
  const Step step = whole_step(shape, rows, context);
  std::printf(
      "\n%s, %d row%s, context %d\n\n| kernel | launches | read, MB | written, MB | "
      "asked of caches, MB | of it needed | turns of shared memory, M | of them needed |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|\n",
      shape.name.c_str(), rows, rows == 1 ? "" : "s", context);
  const auto line = [](const Kernel& k) {
    std::printf("| %s | %.0f | %.2f | %.2f | %.2f | %s | %.3f | %s |\n", k.name.c_str(), k.launches,
                k.read / 1e6, k.written / 1e6, k.sectors * 32 / 1e6,
                share(k.sectors_least, k.sectors).c_str(), k.wavefronts / 1e6,
                share(k.wavefronts_least, k.wavefronts).c_str());
  };
  Kernel all{.name = "all"};
  for (Kernel k : step.kernels) {
    all.launches += k.launches, all.read += k.read, all.written += k.written;
    all.sectors += k.sectors, all.sectors_least += k.sectors_least;
    all.wavefronts += k.wavefronts, all.wavefronts_least += k.wavefronts_least;
    k.name = "`" + k.name + "`";
    line(k);
  }
  line(all);
  std::printf("\nRead: %.4f times the weights, keys and values (%.2f MB).\n", all.read / step.floor,
              step.floor / 1e6);
  std::fflush(stdout);
  std::fprintf(stderr, "%s, %d rows: %.0f s\n", shape.name.c_str(), rows,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

int run(const std::vector<std::string>& arguments) {
  bool tiny = false, lines = false;
  std::string only;
  std::vector<int> rows;
  for (const std::string& a : arguments) {
    if (a == "--tiny") {
      tiny = true;
    } else if (a == "--lines") {
      lines = true;
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
