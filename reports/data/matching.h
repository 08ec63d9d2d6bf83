// Two runs laid side by side: arms matched by label, prompts by key. Shared by compare and gate.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/data/estimators.h"
#include "reports/data/pairing.h"
#include "reports/data/run_data.h"

namespace evalrun::reports {

// Position of every prompt of a run by its key.
std::map<std::string, const PromptInfo*> prompts_by_key(const RunData& data);

// One arm in both runs, over the prompts (of one task, "" = all) that both have.
struct MatchedArm {
  Pairing a, b;                                        // each in its run
  int64_t same_tokens = 0, same_steps = 0, cells = 0;  // (prompt, sample) present in both
  std::string first_changed;                           // prompt whose tokens differ, "" if none
  std::string first_recounted;                         // prompt whose step counters differ
};
// What an arm's times stand against: absent = its reference arm (RunData), "" = nothing, a time of
// 1 ms for each token; else the arm of that label.
using Against = std::optional<std::string>;
// Both runs must have a baseline arm, and an arm of that label.
MatchedArm match_arm(const RunData& a, const RunData& b, const std::string& label,
                     const std::string& task, const Against& against = std::nullopt);

// One arm over all sessions of two sides, over the prompts that have a speedup in each of them.
struct MatchedSessions {
  Pairing a, b;  // totals over the sessions of a side
  SessionLogs logs_a, logs_b;
  std::vector<int64_t> prompts;        // of the logs, by their ids in the first session of A
  int64_t same_tokens = 0, cells = 0;  // of every session of B against the first of A
};
// As match_arm(); neither side is empty.
MatchedSessions match_sessions(const std::vector<RunData>& a, const std::vector<RunData>& b,
                               const std::string& label, const std::string& task,
                               const Against& against = std::nullopt);

}  // namespace evalrun::reports
