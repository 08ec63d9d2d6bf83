#include "runners/train/method_race.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/stats.h"

namespace evalrun::runners {
namespace {

// The shape of a few numbers, as far as a test of their mean asks.
struct RaceShape {
  double skewness = 0;  // twice the adjusted one
  double dof = 1;       // that their deviation is worth
};

RaceShape race_shape(std::span<const double> x, double mean) {
  const double n = static_cast<double>(x.size());
  double m2 = 0, m3 = 0, m4 = 0;  // central moments
  for (const double v : x) {
    const double c = v - mean;
    m2 += c * c / n, m3 += c * c * c / n, m4 += c * c * c * c / n;
  }
  RaceShape shape{.dof = std::max(n - 1, 1.0)};
  if (!(m2 > 0)) return shape;  // all equal
  if (n > 2) shape.skewness = 2 * std::sqrt(n * (n - 1)) / (n - 2) * m3 / std::pow(m2, 1.5);
  if (const double kurtosis = m4 / (m2 * m2); kurtosis > 1)
    shape.dof = std::max(std::min(shape.dof, 2 * n / (kurtosis - 1)), 1.0);
  return shape;
}

// The race while it is run. Plain decoding is the last racer.
class RunningRace {
 public:
  explicit RunningRace(const MethodRace& race)
      : race_(race), plain_(static_cast<size_t>(race.methods)), logs_(plain_ + 1) {
    for (size_t i = 0; i <= plain_; ++i) left_.push_back(i);
    result_.standings.resize(plain_);
  }

  MethodRace::Result run() {
    const std::vector<int> ends = race_.ends();
    result_.most_rounds = static_cast<int>(ends.size());
    level_ = comparison_level(race_.error, race_.methods + 1, result_.most_rounds);
    int begin = 0;
    for (const int end : ends) {
      if (left_.size() == 1) break;
      if (race_.stop && race_.stop()) {
        result_.finished = false;
        break;
      }
      meet(begin, end);
      begin = end;
    }
    if (!result_.rounds.empty() && left_.front() != plain_) result_.winner = left_.front();
    return std::move(result_);
  }

 private:
  double log_speedup(size_t racer) const {
    return logs_[racer].empty() ? 0 : base::mean(logs_[racer]);
  }

  void meet(int begin, int end) {
    MethodRace::Round round;
    round.prompts = end;
    for (const size_t racer : left_)
      if (racer != plain_) round.raced.push_back(racer);
    std::vector<std::vector<double>> logs = race_.measure(round.raced, begin, end);
    EVALRUN_CHECK(logs.size() == round.raced.size(), "{} times of {} methods", logs.size(),
                  round.raced.size());
    for (size_t i = 0; i < logs.size(); ++i) {
      EVALRUN_CHECK(logs[i].size() == logs.front().size(), "prompts of method {}", i);
      std::vector<double>& all = logs_[round.raced[i]];
      all.insert(all.end(), logs[i].begin(), logs[i].end());
      result_.standings[round.raced[i]].prompts = end;
    }
    logs_[plain_].resize(logs_[round.raced.front()].size(), 0.0);
    drop_slower(round);
    result_.rounds.push_back(round);
    if (race_.progress) race_.progress(round);
  }

  // Puts the leader first and takes those out that are shown to be slower.
  void drop_slower(MethodRace::Round& round) {
    std::stable_sort(left_.begin(), left_.end(),
                     [this](size_t a, size_t b) { return log_speedup(a) > log_speedup(b); });
    const size_t leader = left_.front();
    if (leader != plain_) round.leader = leader;
    round.leader_log_speedup = log_speedup(leader);
    for (const size_t racer : round.raced)
      result_.standings[racer].log_speedup = log_speedup(racer);
    std::erase_if(left_, [&](size_t racer) {
      if (racer == leader || !is_slower(racer, leader)) return false;
      if (racer != plain_) {
        round.dropped.push_back(racer);
        result_.standings[racer].dropped_in = static_cast<int>(result_.rounds.size()) + 1;
      }
      return true;
    });
    round.plain_left = std::find(left_.begin(), left_.end(), plain_) != left_.end();
  }

  bool is_slower(size_t racer, size_t leader) const {
    std::vector<double> differences = logs_[leader];
    for (size_t i = 0; i < differences.size(); ++i) differences[i] -= logs_[racer][i];
    return shown_above_zero(differences, level_);
  }

  const MethodRace& race_;
  const size_t plain_;
  double level_ = 0;
  std::vector<size_t> left_;               // racers, the leader first after a round
  std::vector<std::vector<double>> logs_;  // by racer, of all prompts it met
  MethodRace::Result result_;
};

}  // namespace

double comparison_level(double error, int racers, int rounds) {
  EVALRUN_CHECK(error > 0 && racers >= 2 && rounds >= 1, "error {}, {} racers, {} rounds", error,
                racers, rounds);
  return error / (static_cast<double>(racers - 1) * rounds);
}

bool shown_above_zero(std::span<const double> differences, double level) {
  if (differences.size() < 2) return false;
  const double mean = base::mean(differences);
  if (!(mean > 0)) return false;
  const double n = static_cast<double>(differences.size());
  const double s = mean / std::max(base::sample_sd(differences), MethodRace::kNoise);
  const auto [g, dof] = race_shape(differences, mean);
  const double hall = s + g * s * s / 3 + g * g * s * s * s / 27 + g / (6 * n);
  const double t = std::sqrt(n) * std::min(s, hall);
  return base::student_t_cdf(-t, dof) < level;
}

std::vector<int> MethodRace::ends() const {
  std::vector<int> ends;
  for (int end = std::min(prompts, kFewestPrompts); ends.empty() || ends.back() < prompts;
       end = std::min(prompts, 2 * end))
    ends.push_back(end);
  return ends;
}

MethodRace::Result MethodRace::run() const {
  EVALRUN_CHECK(measure != nullptr && methods >= 1 && prompts >= 2, "{} methods, {} prompts",
                methods, prompts);
  return RunningRace(*this).run();
}

}  // namespace evalrun::runners
