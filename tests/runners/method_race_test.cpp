// Elimination of slower methods on made-up times: how often the best is dropped, how soon others
// are, and that a race which spends its error anew in every round is noticed.
#include "runners/train/method_race.h"

#include <gmock/gmock.h>

#include <cmath>

#include "engine/base/rng.h"
#include "engine/base/stats.h"

namespace evalrun::tests {
namespace {

using runners::MethodRace;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kRaces = 2000;
constexpr double kError = 0.05;

// ln of the speedups of methods that have these means and differ from prompt to prompt; `skewed`:
// by an exponential law, as prompts do of which few repeat much.
struct RaceSpeeds {
  std::vector<double> means;
  bool skewed = false;
  double sd = 0.2;
  base::Rng rng{1};

  double noise() {
    const double u = 1 - rng.uniform();  // in (0, 1]
    if (skewed) return sd * (-std::log(u) - 1);
    return sd * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * rng.uniform());
  }
  std::vector<std::vector<double>> measure(const std::vector<size_t>& methods, int begin, int end) {
    std::vector<std::vector<double>> logs(methods.size());
    for (int prompt = begin; prompt < end; ++prompt) {
      const double shared = noise();  // a prompt is easy or hard for all of them
      for (size_t i = 0; i < methods.size(); ++i)
        logs[i].push_back(means[methods[i]] + shared + noise());
    }
    return logs;
  }
};

MethodRace race_of(RaceSpeeds& speeds, int prompts) {
  MethodRace race;
  race.methods = static_cast<int>(speeds.means.size());
  race.prompts = prompts;
  race.error = kError;
  race.measure = [&speeds](const std::vector<size_t>& methods, int begin, int end) {
    return speeds.measure(methods, begin, end);
  };
  return race;
}

// Share of races that drop method 0. `error`: what the race is told to keep to.
double share_dropped(RaceSpeeds speeds, int prompts, double error = kError) {
  int dropped = 0;
  for (int i = 0; i < kRaces; ++i) {
    MethodRace race = race_of(speeds, prompts);
    race.error = error;
    if (race.run().standings[0].dropped_in > 0) ++dropped;
  }
  return static_cast<double>(dropped) / kRaces;
}

// Whether a share seen in kRaces races contradicts a chance of kError at most.
bool too_often(double share) {
  return base::binomial_upper_p(std::lround(share * kRaces), kRaces, kError) < 0.001;
}

TEST(MethodRace, DropsTheBestNoOftenerThanStated) {
  // Equal to the best: as often as can be.
  EXPECT_FALSE(too_often(share_dropped({.means = {0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3}}, 32)));
  EXPECT_FALSE(too_often(share_dropped({.means = {0.3, 0.3}, .skewed = true}, 32)));
  // No faster than plain decoding on average, by few prompts that gain much and many that lose.
  EXPECT_FALSE(too_often(share_dropped({.means = {0}, .skewed = true}, 128)));
  EXPECT_FALSE(too_often(share_dropped({.means = {0.3, 0.28, 0.2, 0, -0.3}}, 64)));
}

TEST(MethodRace, AnErrorSpentAnewInEveryRoundIsSeen) {
  const RaceSpeeds equal{.means = {0.3, 0.3}};
  const int prompts = 256;
  MethodRace race;
  race.prompts = prompts;
  const auto rounds = static_cast<double>(race.ends().size());
  EXPECT_FALSE(too_often(share_dropped(equal, prompts)));
  // Two methods and plain decoding, which is far behind: two comparisons' worth of error for one.
  EXPECT_TRUE(too_often(share_dropped(equal, prompts, 2 * kError * rounds)));
}

TEST(MethodRace, WhatIsClearlySlowerLeavesEarly) {
  RaceSpeeds speeds{.means = {0.6, -0.7}, .sd = 0.05};
  const MethodRace::Result result = race_of(speeds, 64).run();
  EXPECT_EQ(result.winner, 0u);
  EXPECT_LE(result.standings[1].dropped_in, 2);
  EXPECT_GT(result.standings[1].dropped_in, 0);
  EXPECT_LT(result.standings[1].prompts, 64);
  EXPECT_LE(result.rounds.size(), 2u) << "one is left: nothing more to measure";
  EXPECT_FALSE(result.rounds.back().plain_left);
  EXPECT_TRUE(result.finished);
}

TEST(MethodRace, PlainDecodingWinsWhereAllAreSlower) {
  RaceSpeeds speeds{.means = {-0.5, -0.7}, .sd = 0.05};
  const MethodRace::Result result = race_of(speeds, 64).run();
  EXPECT_FALSE(result.winner);
  EXPECT_TRUE(result.rounds.back().plain_left);
  EXPECT_FALSE(result.rounds.back().leader);
  for (const MethodRace::Standing& standing : result.standings) EXPECT_GT(standing.dropped_in, 0);
}

TEST(MethodRace, RoundsDoubleAndSurvivorsMeetAllPrompts) {
  RaceSpeeds speeds{.means = {0.3, 0.3001}, .sd = 0.2};
  std::vector<std::pair<int, int>> parts;
  MethodRace race = race_of(speeds, 20);
  race.measure = [&](const std::vector<size_t>& methods, int begin, int end) {
    parts.emplace_back(begin, end);
    return speeds.measure(methods, begin, end);
  };
  EXPECT_THAT(race.ends(), ElementsAre(8, 16, 20));
  const MethodRace::Result result = race.run();
  EXPECT_EQ(result.most_rounds, 3);
  ASSERT_TRUE(result.winner);
  EXPECT_EQ(result.standings[*result.winner].prompts, 20);
  EXPECT_EQ(parts.size(), result.rounds.size());
  EXPECT_EQ(parts.front(), std::pair(0, 8));
  EXPECT_EQ(parts.back(), std::pair(16, 20));
  race.prompts = 3;
  EXPECT_THAT(race.ends(), ElementsAre(3));
}

TEST(MethodRace, StopsWithTheBestSoFar) {
  RaceSpeeds speeds{.means = {0.2, 0.21}};
  MethodRace race = race_of(speeds, 64);
  int rounds = 0;
  race.progress = [&](const MethodRace::Round&) { ++rounds; };
  race.stop = [&] { return rounds == 1; };
  const MethodRace::Result result = race.run();
  EXPECT_EQ(rounds, 1);
  EXPECT_FALSE(result.finished);
  ASSERT_EQ(result.rounds.size(), 1u);
  EXPECT_EQ(result.winner, result.rounds[0].leader);
  race.stop = [] { return true; };
  EXPECT_THAT(race.run().rounds, IsEmpty());
}

TEST(MethodRace, AFewEqualDifferencesProveLittle) {
  // Deviation 0, but a clock repeats no better than by a percent.
  EXPECT_FALSE(runners::shown_above_zero(std::vector<double>(8, 0.004), 0.01));
  EXPECT_TRUE(runners::shown_above_zero(std::vector<double>(8, 0.4), 0.01));
  EXPECT_FALSE(runners::shown_above_zero(std::vector<double>{0.4}, 0.01));
  EXPECT_FALSE(runners::shown_above_zero(std::vector<double>(8, -0.4), 0.01));
  EXPECT_DOUBLE_EQ(runners::comparison_level(0.05, 9, 5), 0.05 / 40);
}

}  // namespace
}  // namespace evalrun::tests
