// How often the step test refuses draws that are honest, at the level of certificates and above:
// step_level_study [TESTS] [PLACES] [DRAWS]. Prints as it goes; 10^5 tests of 4 places with 200
// draws take four minutes of a core.
#include <fmt/format.h>

#include <cstdlib>

#include "tests/runners/honest_steps.h"

int main(int argc, char** argv) {
  using namespace evalrun::runners;
  const long tests = argc > 1 ? std::atol(argv[1]) : 100'000;
  const int contexts = argc > 2 ? std::atoi(argv[2]) : 4,
            draws = argc > 3 ? std::atoi(argv[3]) : 200;
  constexpr double kLevels[] = {0.001, 0.01, 0.05};
  const HonestSteps steps(contexts, draws);
  long below[3] = {}, places = 0;
  for (long i = 1; i <= tests; ++i) {
    const StepDistribution result = steps.test(static_cast<uint64_t>(i));
    const double p = result.p();
    places += static_cast<long>(result.tests.size());
    for (int l = 0; l < 3; ++l) below[l] += p < kLevels[l];
    if (i % 1000 != 0 && i != tests) continue;
    fmt::print("{} tests of {:.1f} places:", i, static_cast<double>(places) / i);
    for (int l = 0; l < 3; ++l) {
      const double share = static_cast<double>(below[l]) / static_cast<double>(i);
      fmt::print("  p < {:g}: {} = {:.3f} +- {:.3f} %", kLevels[l], below[l], 100 * share,
                 100 * std::sqrt(kLevels[l] * (1 - kLevels[l]) / static_cast<double>(i)));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}
