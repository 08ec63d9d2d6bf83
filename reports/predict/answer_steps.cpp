#include "reports/predict/answer_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace evalrun::reports {
namespace {

using AnswerKey = std::pair<int64_t, int>;  // prompt, sample

int tokens_of(const TracedTurn& turn) {
  int n = 0;
  for (const results::StepRecord& s : turn.steps) n += s.emitted;
  return n;
}

// "" = its answers are plain decoding's by promise or by force.
std::string why_not_shared(const ArmInfo& arm, const ArmInfo& plain) {
  if (arm.model_hash != plain.model_hash) return fmt::format("{} decodes another model", arm.label);
  if (synthetic(arm)) return fmt::format("{} is synthetic acceptance", arm.label);
  if (arm.batch != plain.batch) return fmt::format("{} is of another batch", arm.label);
  if (!replayed(arm) && !promises_tokens(arm))
    return fmt::format("{} does not promise plain decoding's tokens", arm.label);
  return "";
}

// By cell: the hash of its tokens; cells whose repeats differ are not here.
std::map<AnswerKey, std::string> hashes(const RunData& run, const ArmInfo& arm) {
  std::map<AnswerKey, std::string> of;
  for (const SampleRow& s : run.samples)
    if (s.arm_id == arm.id && s.fault.empty() && s.stable)
      of[{s.prompt_id, s.sample}] = s.tokens_hash;
  return of;
}

// One answer of every arm, where they agree about its length; else no turns.
std::vector<SharedTurn> shared_turns(const std::vector<const TracedAnswer*>& traces) {
  std::vector<SharedTurn> turns;
  for (size_t t = 0; t < traces.front()->turns.size(); ++t) {
    SharedTurn& turn = turns.emplace_back();
    turn.tokens = tokens_of(traces.front()->turns[t]);
    for (const TracedAnswer* trace : traces) {
      if (trace->turns.size() != traces.front()->turns.size() ||
          tokens_of(trace->turns[t]) != turn.tokens)
        return {};
      turn.arms.push_back(trace->turns[t]);
    }
  }
  return turns;
}

}  // namespace

SharedAnswers load_shared_answers(const results::ResultStore& store, const RunData& run) {
  SharedAnswers shared;
  const ArmInfo* plain = run.baseline();
  if (plain == nullptr) return shared;
  shared.arms.push_back(plain);
  for (const ArmInfo& arm : run.arms) {
    if (!arm.drafts()) continue;
    if (const std::string why = why_not_shared(arm, *plain); why.empty())
      shared.arms.push_back(&arm);
    else
      shared.notes.push_back("left out: " + why);
  }
  std::vector<std::map<AnswerKey, std::string>> hash;
  std::vector<std::map<AnswerKey, TracedAnswer>> traces;
  std::set<AnswerKey> cells;
  for (const ArmInfo* arm : shared.arms) {
    hash.push_back(hashes(run, *arm));
    traces.emplace_back();
    for (TracedAnswer& a : load_traces(store, run.run.id, arm->id)) {
      cells.insert({a.prompt_id, a.sample});
      traces.back().try_emplace({a.prompt_id, a.sample}, std::move(a));
    }
  }
  for (const AnswerKey& cell : cells) {
    SharedAnswer answer{.prompt_id = cell.first, .sample = cell.second, .turns = {}};
    std::vector<const TracedAnswer*> of;
    for (size_t a = 0; a < shared.arms.size(); ++a) {
      const auto trace = traces[a].find(cell);
      const auto own = hash[a].find(cell), first = hash[0].find(cell);
      if (trace == traces[a].end() || own == hash[a].end() || first == hash[0].end() ||
          own->second != first->second)
        break;
      of.push_back(&trace->second);
    }
    if (of.size() == shared.arms.size()) answer.turns = shared_turns(of);
    if (answer.turns.empty())
      ++shared.left_out;
    else
      shared.answers.push_back(std::move(answer));
  }
  return shared;
}

}  // namespace evalrun::reports
