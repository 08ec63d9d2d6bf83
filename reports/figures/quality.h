// Scores of answers as a row of the report shows them: a mean with its interval, and the paired
// difference from a control arm.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/control_differences.h"
#include "reports/data/design.h"
#include "reports/data/run_data.h"
#include "reports/figures/answer_share.h"
#include "results/store.h"

namespace evalrun::reports {

struct Quality {
  std::string version;
  double value = 0;
  // 95 %, for what the report's scope says: Wilson's for scores of 0 and 1, else Student's t over
  // the prompts' means. Absent for a single unit of the design. Where prompts belong together,
  // Wilson's is of as many independent ones as would have the design's standard error, at most all.
  std::optional<base::Interval> interval;
  int64_t n = 0;             // scored
  int64_t unscored = 0;      // evaluator could not tell
  int64_t suspicious = 0;    // scored, by means that deserve a look
  int64_t unsandboxed = 0;   // programs that ran unprotected (--allow-unsafe)
  std::optional<double> sd;  // over samples, when there are several
  // Against the control arm: answers scored in both, how many of them scored otherwise there,
  // higher here, lower here; the mean difference of the prompts that both have, with its interval
  // and p for all arms at once. Answers to one prompt count as one. Absent for the control itself,
  // and where the machine kept some of its answers from being judged.
  int64_t compared = 0, differing = 0, better = 0, worse = 0;
  AnswerShare better_share, equal_share, worse_share;  // of those compared
  std::optional<ControlDifference> difference;
  std::map<std::string, int64_t> statuses;  // of the answers: "ok", "passed", "timeout", ...
  std::map<int, double> pass_at;            // k -> pass@k, where the evaluator is one; not pooled
};

// One answer's score by one evaluator; without a value where it could not tell. Prompts, evaluators
// and statuses are numbers in the lists of RunScores.
struct Score {
  int prompt = 0, sample = 0, evaluator = 0, status = 0;
  std::optional<double> value, control;  // control: the same answer's of the control arm
  bool suspicious = false, unsandboxed = false;
};

struct RunScores {
  std::vector<int64_t> prompts;                                 // ids, ascending
  std::vector<std::pair<std::string, std::string>> evaluators;  // name, version
  std::vector<std::string> statuses;
  std::map<ArmTask, std::vector<Score>> scores;
  std::map<std::pair<ArmTask, std::string>, std::map<int, double>> pass_at;  // by convention
};

// Of an answer that nobody could judge here; elsewhere it may pass or fail.
bool machine_at_fault(const std::string& status);

// The arm that quality is compared with: the one of that label, or the baseline for "". Null
// without a baseline; usage_error for an unknown label.
const ArmInfo* control_of(const std::vector<ArmInfo>& arms, const std::string& label);

// All scores of a run, with those of the control arm beside them.
RunScores read_scores(const results::ResultStore& store, const RunData& data,
                      const ArmInfo* control);

// Those of each arm on some data sets, by evaluator@version. Differences from the control are a
// family of their own for every evaluator; `seed` is of their draws. Quality::pass_at stays empty.
std::vector<std::map<std::string, Quality>> pool_scores(const RunScores& all,
                                                        std::span<const ArmInfo* const> arms,
                                                        const std::set<std::string>& tasks,
                                                        const PromptDesigns& designs,
                                                        uint64_t seed);

}  // namespace evalrun::reports
