#include "runners/score/score_summary.h"

#include <cmath>

namespace evalrun::runners {

ScoreSummary summarise(std::span<const JudgedAnswer> answers) {
  struct Samples {
    double sum = 0;
    size_t n = 0;
  };
  std::map<size_t, Samples> by_prompt;
  ScoreSummary summary;
  for (const JudgedAnswer& answer : answers) {
    const results::ScoreRecord& score = *answer.score;
    ++summary.statuses[score.status];
    summary.n_suspicious += score.suspicious ? 1 : 0;
    summary.stopped |= score.status == "sandbox_error" || score.status == "toolchain_missing";
    if (!score.value) continue;
    ++summary.n_answers;
    Samples& samples = by_prompt[answer.prompt];
    samples.sum += *score.value;
    ++samples.n;
  }
  summary.n_prompts = by_prompt.size();
  if (by_prompt.empty() || summary.stopped) return summary;
  const auto n = static_cast<double>(by_prompt.size());
  double sum = 0, squares = 0;
  const auto mean_of = [](const Samples& s) { return s.sum / static_cast<double>(s.n); };
  for (const auto& [prompt, samples] : by_prompt) sum += mean_of(samples);
  const double mean = sum / n;
  for (const auto& [prompt, samples] : by_prompt)
    squares += (mean_of(samples) - mean) * (mean_of(samples) - mean);
  summary.value = mean;
  if (by_prompt.size() > 1) summary.standard_error = std::sqrt(squares / (n - 1) / n);
  return summary;
}

}  // namespace evalrun::runners
