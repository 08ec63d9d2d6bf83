// Prints the tables of "Coverage of the intervals" and "The fastest arm" in docs/measurement.md:
// how often intervals of nominal 95 % hold the truth. Run by hand:
// build/release/bin/coverage_study; the seeds are fixed, so that every run prints the same.
#include <fmt/format.h>

#include <cstdio>

#include "tests/reports/data/coverage.h"

namespace evalrun::tests {
namespace {

using reports::Estimator;
using reports::Scope;

constexpr int kExperiments = 20'000;           // of t intervals
constexpr int kBootstrapExperiments = 10'000;  // with 1,000 resamples each

std::string cell(const Coverage& c) {
  return fmt::format("{:.1f} ± {:.1f}", 100 * c.share(), 100 * c.standard_error());
}

void print_prompts() {
  fmt::print(
      "| rho | prompts | sum, t | geo, t | legacy, t | sum, bootstrap | geo, bootstrap | legacy, "
      "bootstrap |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const double rho : {0.0, -0.5})
    for (const int n : {10, 20, 40, 80, 164, 480}) {
      const PromptModel model = {.rho = rho};
      fmt::print("| {} | {}", rho, n);
      for (const auto by : {IntervalOf::kStudent, IntervalOf::kBootstrap})
        for (const auto estimator : {Estimator::kSum, Estimator::kGeo, Estimator::kLegacy})
          fmt::print(" | {}",
                     cell(cover_prompts(
                         model, n, estimator, by,
                         by == IntervalOf::kStudent ? kExperiments : kBootstrapExperiments)));
      fmt::print(" |\n");
      std::fflush(stdout);
    }
}

void print_sessions() {
  fmt::print(
      "\n| sessions a side | fixed set | population | fixed set, sessions ignored | population, "
      "sessions ignored |\n|--:|--:|--:|--:|--:|\n");
  for (const int sessions : {1, 3, 5, 10}) {
    const SessionModel model = {.sessions = sessions};
    fmt::print("| {}", sessions);
    for (const Scope scope : {Scope::kFixedSet, Scope::kPopulation})
      fmt::print(" | {}", sessions == 1 ? "-" : cell(cover_sessions(model, scope, kExperiments)));
    for (const Scope scope : {Scope::kFixedSet, Scope::kPopulation})
      fmt::print(" | {}", cell(cover_ignoring_sessions(model, scope, kExperiments)));
    fmt::print(" |\n");
    std::fflush(stdout);
  }
}

void print_best_sets() {
  constexpr int kBestExperiments = 4'000;
  fmt::print(
      "\n| arms | prompts | sum, equal sd | sum, sd 0.1 to 0.5 | geo, equal sd | geo, sd 0.1 to "
      "0.5 |\n"
      "|--:|--:|--:|--:|--:|--:|\n");
  for (const int arms : {5, 20})
    for (const int n : {10, 30, 80}) {
      fmt::print("| {} | {}", arms, n);
      for (const auto estimator : {Estimator::kSum, Estimator::kGeo})
        for (const ArmsModel& model :
             {ArmsModel{.arms = arms}, {.arms = arms, .least_sd = 0.1, .largest_sd = 0.5}})
          fmt::print(" | {}", cell(cover_best_set(model, n, estimator, kBestExperiments)));
      fmt::print(" |\n");
      std::fflush(stdout);
    }
}

}  // namespace
}  // namespace evalrun::tests

int main() {
  evalrun::tests::print_prompts();
  evalrun::tests::print_sessions();
  evalrun::tests::print_best_sets();
}
