// Which of a handful of methods is the fastest on a kind of text: a race by sequential elimination
// with a stated error probability (evalrun tune method).
//
// Racers meet prompts in rounds: a few at first, then each time as many new ones as there were so
// far. Plain decoding takes part. On every prompt each racer has x = ln of its speedup over plain
// decoding of the same prompt, plain decoding itself 0. After each round the racers are compared
// with the leader, the one of the largest mean. Let d be the n differences "leader - racer" on the
// same prompts, so that what is easy or hard about a prompt cancels, S = mean(d) / s with s the
// standard deviation of d (kNoise at least), and g their skewness. The racer leaves when
//
//   sqrt(n) min(S, S + g S^2 / 3 + g^2 S^3 / 27 + g / (6 n)) > t(1 - a, v),
//   a = error / ((K - 1) R)
//
// with K racers at the start and R rounds at most. The truly best racer is dropped only when one of
// its (K - 1) R comparisons is wrong in its disfavour. By Bonferroni's inequality this has a chance
// of `error` at most, as far as each of them keeps to a. Two corrections make t safer with few
// prompts of which a few gain much:
//
// - The second term of the minimum is Hall's, who takes the skewness out of t (1992). Samples show
//   less skewness than their population. So g is twice the adjusted coefficient
//   sqrt(n (n - 1)) / (n - 2) m3 / m2^1.5.
// - v = min(n - 1, 2 n / (k - 1)) degrees of freedom, 1 at least, with the kurtosis k of d.
//
// No test of a mean is right for every population. Gains that one prompt in ten has, and the others
// not at all, are seen too late by any that is not told how large they can be.
//
// Sources: races, Maron and Moore 1994 (Hoeffding Races, NIPS 6); paired differences in them, Moore
// and Lee 1994 (ICML, BRACE); successive elimination with the error spread over arms and rounds,
// Even-Dar, Mannor and Mansour 2006 (JMLR 7, algorithm 3); t of skewed populations, Hall 1992 (On
// the removal of skewness by transformation, J. R. Statist. Soc. B 54, 221-228).
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace evalrun::runners {

// Chance that a single comparison may be wrong. All three positive, `racers` two at least.
double comparison_level(double error, int racers, int rounds);
// Whether the mean of the population of these differences is above 0, at this one-sided level.
bool shown_above_zero(std::span<const double> differences, double level);

struct MethodRace {
  // Deviations below it are taken for it: times repeat no better than by a percent, and a few equal
  // differences are no proof that all are equal.
  static constexpr double kNoise = 0.01;
  static constexpr int kFewestPrompts = 8;  // of the first round, where there are as many

  int methods = 1;      // that race against plain decoding and each other: 0, 1, ...
  int prompts = 16;     // all there are
  double error = 0.05;  // chance to drop the best
  // ln of the speedup over plain decoding of each of these methods on prompts [begin, end), in
  // order of `methods`, all of the same prompts. Prompts of which nothing was decoded are missing
  // in all of them.
  std::function<std::vector<std::vector<double>>(const std::vector<size_t>& methods, int begin,
                                                 int end)>
      measure;
  std::function<bool()> stop;  // true = end with the best so far; asked between rounds

  struct Standing {
    double log_speedup = 0;  // mean over the prompts it met
    int prompts = 0;         // that it met
    int dropped_in = 0;      // round, from 1; 0 = still in
  };
  struct Round {
    int prompts = 0;               // met so far
    std::vector<size_t> raced;     // methods, at the start of the round
    std::vector<size_t> dropped;   // after it
    std::optional<size_t> leader;  // nullopt = plain decoding
    bool plain_left = true;        // plain decoding is not dropped yet
    double leader_log_speedup = 0;
  };
  std::function<void(const Round&)> progress;  // after each round; may be empty

  struct Result {
    std::optional<size_t> winner;     // nullopt = plain decoding, or nothing was measured
    std::vector<Standing> standings;  // by method
    std::vector<Round> rounds;
    int most_rounds = 0;
    bool finished = true;  // not stopped before one was left or the prompts were used up
  };
  Result run() const;

  // Prompts met after each round when nothing ends the race: 8, 16, 32, ..., prompts.
  std::vector<int> ends() const;
};

}  // namespace evalrun::runners
