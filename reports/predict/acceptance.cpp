#include "reports/predict/acceptance.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"

namespace evalrun::reports {
namespace {

using results::StepRecord;

// Cut by the stop rule: it has no token of the target.
bool is_truncated(const StepRecord& s) { return s.emitted <= s.accepted; }

bool first_is_known(const StepRecord& s) {
  return s.drafted_depth > 0 && (s.accepted > 0 || !is_truncated(s));
}

Before outcome(const StepRecord& s) {
  if (s.drafted_depth == 0) return Before::kUndrafted;
  return s.accepted < s.drafted_depth ? Before::kRefused : Before::kWhole;
}

void add(Decided& to, double accepted, double refused, double weight) {
  to.tested += weight * (accepted + refused), to.accepted += weight * accepted;
}

void add_depths(std::vector<DepthOutcome>& depths, const StepRecord& s, double weight) {
  const auto at = [&](int depth) -> DepthOutcome& {
    if (static_cast<int>(depths.size()) < depth) depths.resize(static_cast<size_t>(depth));
    return depths[static_cast<size_t>(depth - 1)];
  };
  for (int d = 1; d <= s.accepted; ++d) at(d).accepted += weight;
  DepthOutcome& next = at(s.accepted + 1);
  if (is_truncated(s))
    next.cut += weight;
  else if (s.accepted < s.drafted_depth)
    next.refused += weight;
  else
    next.not_drafted += weight;
}

void add_turn(ArmAcceptance& a, const TracedTurn& turn, double weight) {
  int tokens = 0, place = 0;
  for (const StepRecord& s : turn.steps) tokens += s.emitted;
  Before before = Before::kNothing;
  for (const StepRecord& s : turn.steps) {
    const auto part = static_cast<size_t>(place) * ArmAcceptance::kParts /
                      static_cast<size_t>(std::max(1, tokens));
    AnswerPart& of = a.parts[std::min(part, ArmAcceptance::kParts - 1)];
    of.steps += weight, of.emitted += weight * s.emitted;
    const bool refused = !is_truncated(s) && s.accepted < s.drafted_depth;
    add(of.tokens, s.accepted, refused, weight);
    add_depths(a.depths, s, weight);
    if (first_is_known(s)) {
      add(a.first_by_before[static_cast<size_t>(before)], s.accepted > 0, s.accepted == 0, weight);
      add(a.first, s.accepted > 0, s.accepted == 0, weight);
    }
    place += s.emitted;
    before = outcome(s);
  }
}

// First draft tokens of each of `members` (numbers of arms) at the places where all of them have
// one.
std::map<size_t, Decided> at_shared_places(const SharedAnswers& shared,
                                           const std::vector<size_t>& members) {
  std::map<size_t, Decided> of;
  for (const SharedAnswer& answer : shared.answers)
    for (const SharedTurn& turn : answer.turns) {
      std::map<int, std::map<size_t, bool>> begins;  // place -> arm -> first token accepted
      for (const size_t m : members) {
        int place = 0;
        for (const StepRecord& s : turn.arms[m].steps) {
          if (first_is_known(s)) begins[place][m] = s.accepted > 0;
          place += s.emitted;
        }
      }
      for (const auto& [place, arms] : begins)
        if (arms.size() == members.size())
          for (const auto& [m, accepted] : arms) add(of[m], accepted, !accepted, 1);
    }
  return of;
}

void add_shared(std::vector<ArmAcceptance>& rows, const SharedAnswers& shared) {
  std::map<std::string, std::vector<size_t>> methods;
  for (size_t a = 1; a < shared.arms.size(); ++a) methods[shared.arms[a]->method].push_back(a);
  for (const auto& [method, members] : methods) {
    if (members.size() < 2) continue;
    for (const auto& [m, first] : at_shared_places(shared, members))
      for (ArmAcceptance& row : rows)
        if (row.arm == shared.arms[m]->label) row.first_shared = first;
  }
}

}  // namespace

const char* to_string(Before b) {
  switch (b) {
    case Before::kNothing:
      return "the answer began";
    case Before::kRefused:
      return "a draft token was refused";
    case Before::kWhole:
      return "a draft was accepted whole";
    case Before::kUndrafted:
      return "nothing was drafted";
  }
  EVALRUN_CHECK(false, "outcome {}", static_cast<int>(b));
}

std::vector<ArmAcceptance> acceptance_of_arms(const results::ResultStore& store, const RunData& run,
                                              const std::vector<const ArmInfo*>& arms,
                                              const SharedAnswers& shared) {
  std::vector<ArmAcceptance> rows;
  for (const ArmInfo* arm : arms) {
    ArmAcceptance& a = rows.emplace_back();
    a.arm = arm->label, a.method = arm->method;
    std::set<int64_t> prompts;
    for (const TracedAnswer& answer : load_traces(store, run.run.id, arm->id)) {
      prompts.insert(answer.prompt_id);
      for (const TracedTurn& turn : answer.turns) add_turn(a, turn, answer.weight);
    }
    a.n_prompts = static_cast<int>(prompts.size());
  }
  add_shared(rows, shared);
  return rows;
}

}  // namespace evalrun::reports
