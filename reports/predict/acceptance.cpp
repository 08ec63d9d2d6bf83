#include "reports/predict/acceptance.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "engine/base/error.h"
#include "reports/predict/step_endings.h"

namespace evalrun::reports {
namespace {

using results::StepRecord;

bool first_is_known(const StepRecord& s) {
  return s.drafted_depth > 0 && (s.accepted > 0 || !is_truncated(s));
}

Before outcome(const StepRecord& s, Ending ending) {
  if (s.drafted_depth == 0) return Before::kUndrafted;
  return ending == Ending::kNotDrafted ? Before::kWhole
         : ending == Ending::kUnclear  ? Before::kUnclear
                                       : Before::kRefused;
}

void add(Decided& to, double accepted, double refused, double weight) {
  to.tested += weight * (accepted + refused), to.accepted += weight * accepted;
}

void add_depths(std::vector<DepthOutcome>& depths, const TracedTurn& turn,
                const StepEndings& endings, double weight) {
  const std::span<const StepEndings::AtDepth> ended = endings.depths();
  if (depths.size() < ended.size()) depths.resize(ended.size());
  for (const StepRecord& s : turn.steps) {
    const auto n = static_cast<size_t>(s.accepted);
    for (size_t d = 0; d < n; ++d) depths[d].accepted += weight;
    if (is_truncated(s)) depths[n].cut += weight;
  }
  for (size_t d = 0; d < ended.size(); ++d) {
    const StepEndings::AtDepth& here = ended[d];
    depths[d].refused += weight * here.least;
    depths[d].unclear += weight * (here.most - here.least);
    depths[d].not_drafted += weight * (here.whole + here.open - here.most);
  }
}

void add_turn(ArmAcceptance& a, const TracedTurn& turn, double weight) {
  int tokens = 0, place = 0;
  for (const StepRecord& s : turn.steps) tokens += s.emitted;
  const StepEndings endings(turn);
  add_depths(a.depths, turn, endings, weight);
  Before before = Before::kNothing;
  for (const StepRecord& s : turn.steps) {
    const auto part = static_cast<size_t>(place) * ArmAcceptance::kParts /
                      static_cast<size_t>(std::max(1, tokens));
    AnswerPart& of = a.parts[std::min(part, ArmAcceptance::kParts - 1)];
    of.steps += weight, of.emitted += weight * s.emitted;
    const Ending ending = endings.of(s);
    add(of.tokens, s.accepted, ending == Ending::kRefused, weight);
    if (ending == Ending::kUnclear) of.unclear += weight;
    if (first_is_known(s)) {
      add(a.first_by_before[static_cast<size_t>(before)], s.accepted > 0, s.accepted == 0, weight);
      add(a.first, s.accepted > 0, s.accepted == 0, weight);
    }
    place += s.emitted;
    before = outcome(s, ending);
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
    case Before::kUnclear:
      return "a draft token was refused or a branch ended";
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
