// predicted_bits: writes tests/gpu/predicted_bits.txt on the emulated device, or looks whether the
// kernels still give what it says. Needs no GPU.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/report/predicted_bits.h"
#include "tests/gpu/report/program.h"

namespace evalrun::engine::gpu_report {
namespace {

constexpr const char* kUsage = R"(usage: predicted_bits --write FILE KERNELS
       predicted_bits --check FILE

  --write FILE KERNELS  every case, by the models of Hopper and Ampere: minutes. KERNELS is what
                        `git rev-parse HEAD:engine/cuda/kernels` prints, for the file to say
  --check FILE          the kernels' bits beside FILE's: small models; with EVALRUN_TEST_ALL set all
                        of it. Exit code 1 where a bit is another
)";

constexpr TensorCores kModels[] = {TensorCores::kHopper, TensorCores::kAmpere};

ComputedCase compute_as(TensorCores how, const BitCase& c) {
  cuda::testing::emulated_tensor_cores() = how;
  return compute_bits(c);
}

int write(const std::string& path, const std::string& kernels) {
  Predictions predictions;
  predictions.made_from = "engine/cuda/kernels of git's tree " + kernels +
                          ", compiler " __VERSION__ ", tensor cores as of mmasim 2.1.1";
  for (BitCase& c : bit_cases(true)) {
    // The largest step: smaller ones have the first of its rows, which --check sees to.
    c.steps = {{c.most_rows()}};
    PredictedCase p{c.name, 0, {}};
    for (const TensorCores how : kModels) {
      const ComputedCase computed = compute_as(how, c);
      p.inputs = computed.inputs;
      p.rows[how] = computed.steps.front();
    }
    predictions.cases.push_back(std::move(p));
    std::fprintf(stderr, "%s\n", c.name.c_str());
  }
  if (!(std::ofstream(path) << print_predictions(predictions) << std::flush))
    throw base::data_error(path, "", "cannot be written");
  return 0;
}

int check(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!(text << file.rdbuf())) throw base::data_error(path, "", "cannot be read");
  const Predictions predictions = parse_predictions(path, text.str());
  bool good = true;
  for (const BitCase& c : bit_cases(std::getenv("EVALRUN_TEST_ALL") != nullptr))
    for (const TensorCores how : kModels) {
      const CaseComparison result =
          compare_with_prediction(c, compute_as(how, c), predictions, how);
      const bool as_predicted = result.why_not.empty() && !result.first;
      good = good && as_predicted;
      std::printf("%s, %s: %s\n", c.name.c_str(), std::string(name_of(how)).c_str(),
                  as_predicted    ? fmt::format("{} rows as predicted", result.equal).c_str()
                  : !result.first ? result.why_not.c_str()
                                  : result.first->text().c_str());
      std::fflush(stdout);
    }
  if (!good)
    std::printf(
        "Kernels give other bits than %s says. Where they are meant to, write it anew: "
        "predicted_bits --write\n",
        path.c_str());
  return good ? 0 : 1;
}

int run(const std::vector<std::string>& arguments) {
  emulator::set_device_memory(size_t{8} << 30);
  if (arguments.size() == 3 && arguments[0] == "--write") return write(arguments[1], arguments[2]);
  if (arguments.size() == 2 && arguments[0] == "--check") return check(arguments[1]);
  throw base::usage_error("one of --write FILE KERNELS and --check FILE is needed", kUsage);
}

}  // namespace
}  // namespace evalrun::engine::gpu_report

int main(int argc, char** argv) {
  using namespace evalrun::engine::gpu_report;
  return run_program(argc, argv, kUsage, run);
}
