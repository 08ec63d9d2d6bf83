#include "reports/data/matching.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/error.h"

namespace evalrun::reports {

std::map<std::string, const PromptInfo*> prompts_by_key(const RunData& data) {
  std::map<std::string, const PromptInfo*> by_key;
  for (const PromptInfo& p : data.prompts) by_key[p.key] = &p;
  return by_key;
}

namespace {

// The arm's own tokens at a speed that never changes: what is left of a change of the ratio is the
// arm's.
Pairing pair_with_nothing(const ArmCells& cells, const std::function<bool(int64_t)>& keep) {
  constexpr double kTokenNs = 1e6;
  Pairing p = pair_with_reference(cells, cells, keep);
  const PromptPairs measured = p.prompts;
  for (const auto& [id, pair] : measured) {
    PromptPair& steady = p.prompts[id];
    steady.base_ns = steady.base_fastest_ns = kTokenNs * pair.base_tokens;
  }
  p.base.decode_ns = p.base.fastest_ns = kTokenNs * p.base.n_decode;
  return p;
}

Pairing pair_arm(const RunData& data, const ArmInfo& arm,
                 const std::unordered_set<int64_t>& prompts, const Against& against) {
  const auto keep = [&](int64_t id) { return prompts.contains(id); };
  if (against && against->empty()) return pair_with_nothing(cells_of(data, arm.id), keep);
  const ArmInfo* other = against ? data.arm(*against) : data.reference(arm);
  EVALRUN_CHECK(other != nullptr, "run {} has no arm '{}'", data.run.id,
                against.value_or("baseline"));
  return pair_with_reference(cells_of(data, arm.id), cells_of(data, other->id), keep);
}

}  // namespace

MatchedArm match_arm(const RunData& a, const RunData& b, const std::string& label,
                     const std::string& task, const Against& against) {
  const ArmInfo* arm_a = a.arm(label);
  const ArmInfo* arm_b = b.arm(label);
  EVALRUN_CHECK(arm_a != nullptr && arm_b != nullptr, "arm '{}' is not in both runs", label);
  const auto takes_part = [&](const PromptInfo& p) { return task.empty() || p.task == task; };
  std::unordered_map<std::string_view, const PromptInfo*> by_key_b;
  for (const PromptInfo& p : b.prompts)
    if (takes_part(p)) by_key_b[p.key] = &p;
  std::vector<std::pair<const PromptInfo*, const PromptInfo*>> common;
  std::unordered_set<int64_t> ids_a, ids_b;
  for (const PromptInfo& p : a.prompts) {
    const auto it = by_key_b.find(p.key);
    if (it == by_key_b.end() || !takes_part(p)) continue;
    common.emplace_back(&p, it->second);
    ids_a.insert(p.id);
    ids_b.insert(it->second->id);
  }
  MatchedArm m;
  m.a = pair_arm(a, *arm_a, ids_a, against);
  m.b = pair_arm(b, *arm_b, ids_b, against);
  const auto cells_a = cells_of(a, arm_a->id), cells_b = cells_of(b, arm_b->id);
  for (const auto& [p, q] : common) {
    for (auto it = cells_a.lower_bound({p->id, 0}); it != cells_a.end() && it->first.first == p->id;
         ++it) {
      const auto other = cells_b.find({q->id, it->first.second});
      if (other == cells_b.end()) continue;
      ++m.cells;
      if (it->second->tokens_hash == other->second->tokens_hash)
        ++m.same_tokens;
      else if (m.first_changed.empty())
        m.first_changed = p->name;
      if (it->second->steps_hash == other->second->steps_hash)
        ++m.same_steps;
      else if (m.first_recounted.empty())
        m.first_recounted = p->name;
    }
  }
  return m;
}

namespace {

// The sessions of one side, their cells added up.
struct Side {
  Pairing total;
  std::vector<std::map<std::string, double>> logs;  // of each session: prompt key -> ln s_i

  void add(const RunData& run, const Pairing& p) {
    total.method.add(p.method);
    total.base.add(p.base);
    std::map<std::string, double>& of = logs.emplace_back();
    for (const PromptInfo& prompt : run.prompts)
      if (const auto it = p.prompts.find(prompt.id); it != p.prompts.end())
        if (const auto log = fastest_log_ratios({&it->second, 1}); !log.empty())
          of[prompt.key] = log[0];
  }
};

// Of the prompts that have a speedup in every session of both sides.
std::pair<SessionLogs, SessionLogs> common_logs(const Side& a, const Side& b,
                                                std::vector<std::string>& keys) {
  SessionLogs of_a(a.logs.size()), of_b(b.logs.size());
  for (const auto& [key, log] : a.logs.front()) {
    const auto has = [&](const auto& session) { return session.contains(key); };
    if (!std::all_of(a.logs.begin(), a.logs.end(), has) ||
        !std::all_of(b.logs.begin(), b.logs.end(), has))
      continue;
    keys.push_back(key);
    for (size_t r = 0; r < of_a.size(); ++r) of_a[r].push_back(a.logs[r].at(key));
    for (size_t r = 0; r < of_b.size(); ++r) of_b[r].push_back(b.logs[r].at(key));
  }
  return {of_a, of_b};
}

}  // namespace

MatchedSessions match_sessions(const std::vector<RunData>& a, const std::vector<RunData>& b,
                               const std::string& label, const std::string& task,
                               const Against& against) {
  EVALRUN_CHECK(!a.empty() && !b.empty(), "a side without sessions");
  Side side_a, side_b;
  MatchedSessions matched;
  for (size_t r = 0; r < b.size(); ++r) {
    const MatchedArm m = match_arm(a[0], b[r], label, task, against);
    if (r == 0) side_a.add(a[0], m.a);
    side_b.add(b[r], m.b);
    matched.cells += m.cells, matched.same_tokens += m.same_tokens;
  }
  for (size_t r = 1; r < a.size(); ++r)
    side_a.add(a[r], match_arm(a[r], b[0], label, task, against).a);
  std::vector<std::string> keys;
  std::tie(matched.logs_a, matched.logs_b) = common_logs(side_a, side_b, keys);
  const auto by_key = prompts_by_key(a[0]);
  for (const std::string& key : keys) matched.prompts.push_back(by_key.at(key)->id);
  matched.a = std::move(side_a.total);
  matched.b = std::move(side_b.total);
  return matched;
}

}  // namespace evalrun::reports
