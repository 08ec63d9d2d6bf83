// Prints the tables of simulations in docs/coverage.md and docs/measurement.md ("The fastest arm"
// and what follows it, "Quality"), and one of several machines: how often intervals of nominal 95 %
// hold the truth. Run by hand: build/release/bin/coverage_study [prompts] [lengths] [groups]
// [sessions] [best] [ranks] [quality] [machines]; the seeds are fixed, so that every run prints the
// same.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/reports/data/coverage.h"
#include "tests/reports/data/machine_coverage.h"

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

void print_lengths() {
  struct Case {
    const char* name;
    PromptModel model;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const PromptModel worse = {.rho = -0.5};
  const auto with = [&](double cut, double pareto, double looping) {
    PromptModel m = worse;
    m.cut = cut, m.pareto = pareto, m.looping = looping;
    return m;
  };
  fmt::print(
      "\n| answers | prompts | sum, before | sum | its width, relative | geo | legacy, before | "
      "legacy |\n|:--|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const Case& c :
       {Case{"rho 0", {}}, Case{"rho -0.5", worse}, Case{"rho -0.5, cut at 400", with(400, 0, 0)},
        Case{"rho -0.5, cut at 120", with(120, 0, 0)},
        Case{"rho -0.5, Pareto 2.1", with(inf, 2.1, 0)},
        Case{"rho 0, 15 % in a loop", {.cut = 400, .looping = 0.15}}})
    for (const int n : {8, 20, 40, 80, 480}) {
      const auto covered = [&](Estimator estimator, IntervalOf by) {
        return cell(cover_prompts(c.model, n, estimator, by, kExperiments));
      };
      fmt::print("| {} | {} | {} | {} | {:.2f} | {} | {} | {} |\n", c.name, n,
                 covered(Estimator::kSum, IntervalOf::kLinearised),
                 covered(Estimator::kSum, IntervalOf::kStudent),
                 relative_width(c.model, n, Estimator::kSum, 2'000),
                 covered(Estimator::kGeo, IntervalOf::kStudent),
                 covered(Estimator::kLegacy, IntervalOf::kLinearised),
                 covered(Estimator::kLegacy, IntervalOf::kStudent));
      std::fflush(stdout);
    }
}

void print_groups() {
  struct Case {
    const char* name;
    GroupModel model;
    Scope question;
  };
  const auto kinds = [](int groups, int members, double between, double within) {
    return GroupModel{.groups = groups,
                      .members = members,
                      .are_kinds = true,
                      .between_sd = between,
                      .within_sd = within};
  };
  const auto problems = [](int groups, double between, double within) {
    return GroupModel{.groups = groups, .between_sd = between, .within_sd = within};
  };
  fmt::print(
      "\n| prompts | sd between, within | question | sum, on their own | sum | its width | geo, on "
      "their own | geo | its width |\n|:--|:--|:--|--:|--:|--:|--:|--:|--:|\n");
  for (const Case& c : {Case{"6 categories x 6", kinds(6, 6, 0.2, 0.2), Scope::kSameKind},
                        Case{"13 categories x 6", kinds(13, 6, 0.2, 0.25), Scope::kSameKind},
                        Case{"8 categories x 10", kinds(8, 10, 0.1, 0.25), Scope::kSameKind},
                        Case{"20 categories x 2", kinds(20, 2, 0.2, 0.25), Scope::kSameKind},
                        Case{"6 categories x 6", kinds(6, 6, 0.2, 0.2), Scope::kNewKinds},
                        Case{"13 categories x 6", kinds(13, 6, 0.2, 0.25), Scope::kNewKinds},
                        Case{"8 categories x 10", kinds(8, 10, 0.1, 0.25), Scope::kNewKinds},
                        Case{"20 problems x 6", problems(20, 0.15, 0.15), Scope::kSameKind},
                        Case{"164 problems x 6", problems(164, 0.15, 0.15), Scope::kSameKind},
                        Case{"40 problems x 6", problems(40, 0.1, 0.2), Scope::kSameKind}}) {
    fmt::print("| {} | {}, {} | {}", c.name, c.model.between_sd, c.model.within_sd,
               c.model.are_kinds ? to_string(c.question) : "new problems");
    for (const Estimator estimator : {Estimator::kSum, Estimator::kGeo}) {
      const GroupCoverage g =
          cover_groups(c.model, c.question, estimator, c.model.groups > 100 ? 4'000 : 10'000);
      fmt::print(" | {} | {} | {:.2f}", cell(g.on_their_own), cell(g.designed), g.relative_width);
    }
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
    for (const Scope scope : {Scope::kFixedSet, Scope::kSameKind})
      fmt::print(" | {}", sessions == 1 ? "-" : cell(cover_sessions(model, scope, kExperiments)));
    for (const Scope scope : {Scope::kFixedSet, Scope::kSameKind})
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

void print_ranks() {
  fmt::print(
      "\n| arms | prompts | sum, equal arms | sum, 2 % apart | geo, equal arms | geo, 2 % apart "
      "|\n|--:|--:|--:|--:|--:|--:|\n");
  for (const int arms : {3, 5, 11, 20})
    for (const int n : {10, 30, 80}) {
      fmt::print("| {} | {}", arms, n);
      for (const auto estimator : {Estimator::kSum, Estimator::kGeo})
        for (const double steps : {0.0, 0.02})
          fmt::print(" | {}", cell(cover_ranks({.arms = arms}, steps, n, estimator, 2'000)));
      fmt::print(" |\n");
      std::fflush(stdout);
    }
}

void print_quality() {
  constexpr int kQualityExperiments = 2'000;
  struct Case {
    const char* name;
    ScoresModel model;
  };
  fmt::print(
      "\n| scores | arms | prompts | differ | no interval | equal arms | one by one | apart | one "
      "by one |\n|:--|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const Case& c : {Case{"0 or 1, answers of their own", {.binary = true}},
                        Case{"0 or 1, 70 % the control's", {.binary = true, .same = 0.7}},
                        Case{"ROUGE-L, answers of their own", {.binary = false}},
                        Case{"ROUGE-L, 70 % the control's", {.binary = false, .same = 0.7}}})
    for (const int arms : {1, 5, 12})
      for (const int n : {40, 80}) {
        ScoresModel model = c.model;
        model.arms = arms;
        const QualityCoverage equal = cover_quality(model, n, kQualityExperiments);
        model.steps = 0.05;
        const QualityCoverage apart = cover_quality(model, n, kQualityExperiments);
        fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {} | {} | {} | {} |\n", c.name, arms, n,
                   equal.differing, 100 * equal.without, cell(equal.at_once), cell(equal.alone),
                   cell(apart.at_once), cell(apart.alone));
        std::fflush(stdout);
      }
}

void print_machines() {
  constexpr int kMachineExperiments = 10'000;
  struct Case {
    const char* name;
    std::vector<int> sizes;
    bool heavy;
  };
  const std::vector<Case> cases = {{"20 each", {20}, false},
                                   {"80 each", {80}, false},
                                   {"5, 10, 20, 40", {5, 10, 20, 40}, false},
                                   {"3 each", {3}, false},
                                   {"20 each, heavy tails", {20}, true}};
  fmt::print(
      "\n| machines | prompts | sd between | these: sum | geo | all pooled: sum | like these: sum "
      "| "
      "geo | HKSJ, own variances | HKSJ, pooled variance | all pooled: geo | said to differ: F | "
      "chi-square |\n|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  constexpr int kLargeRun = 1000;  // prompts; takes minutes and shows nothing new
  for (const int k : {2, 4, 16})
    for (const Case& c : cases)
      for (const double sd : {0.0, 0.15}) {
        if (k * c.sizes.front() > kLargeRun) continue;
        MachineModel model = machine_model(k, c.sizes, sd);
        if (c.heavy) model.outliers = true, model.prompts = {.cut = 400, .looping = 0.15};
        const auto covered = [&](Question question, Estimator estimator, JoinedBy by) {
          return cell(cover_machines(model, question, estimator, by, kMachineExperiments).coverage);
        };
        const SpreadCalls calls = call_spread(model, Estimator::kGeo, 4'000);
        fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", k,
                   c.name, sd, covered(Question::kThese, Estimator::kSum, JoinedBy::kJoined),
                   covered(Question::kThese, Estimator::kGeo, JoinedBy::kJoined),
                   covered(Question::kThese, Estimator::kSum, JoinedBy::kPooled),
                   covered(Question::kLikeThese, Estimator::kSum, JoinedBy::kJoined),
                   covered(Question::kLikeThese, Estimator::kGeo, JoinedBy::kJoined),
                   covered(Question::kLikeThese, Estimator::kGeo, JoinedBy::kHksj),
                   covered(Question::kLikeThese, Estimator::kGeo, JoinedBy::kHksjPooled),
                   covered(Question::kLikeThese, Estimator::kGeo, JoinedBy::kPooled),
                   cell(calls.by_f), cell(calls.by_chi_square));
        std::fflush(stdout);
      }
}

}  // namespace
}  // namespace evalrun::tests

int main(int argc, char** argv) {
  const std::pair<std::string_view, void (*)()> parts[] = {
      {"prompts", evalrun::tests::print_prompts}, {"lengths", evalrun::tests::print_lengths},
      {"groups", evalrun::tests::print_groups},   {"sessions", evalrun::tests::print_sessions},
      {"best", evalrun::tests::print_best_sets},  {"ranks", evalrun::tests::print_ranks},
      {"quality", evalrun::tests::print_quality}, {"machines", evalrun::tests::print_machines}};
  for (const auto& [name, print] : parts)
    if (argc < 2 || std::find(argv + 1, argv + argc, name) != argv + argc) print();
}
