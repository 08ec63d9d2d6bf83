// The oracle gap: what perfect choices would have given along the answers of a run, the choice of
// the draft's length at every step and the choice among the run's drafters ("Speculative Decoding:
// Performance or Illusion?", arXiv 2601.11580, asks for both). Nothing is run and nothing is drawn:
// the stored steps say which draft tokens would have been accepted, and the best way through every
// answer is found by dynamic programming over the places in it.
//
// What is known of a drafter. At a place where it began a step, it gets as many tokens right as
// that step accepted. One whose draft depends on the text before the place alone (text_only()) has
// one answer for every token, wherever its draft began: right where a step accepted it, wrong where
// a step refused it. Tokens that no draft of it was compared with are unknown. Taken for wrong they
// give a lower bound of what perfect choices would have given, taken for right an upper one; where
// both agree the figure is exact. Of other drafters nothing is known between the places where they
// began steps, so there is a lower bound alone. No draft is longer than the longest measured one.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reports/predict/answer_steps.h"
#include "reports/predict/step_costs.h"

namespace evalrun::reports {

// Whether a drafter's token depends on the tokens before it alone: greedy draft models (sps) and
// the target's own layers (self_spec), in chains of a length that does not follow their success.
bool text_only(const ArmInfo& arm);

// What is known of a drafter along one turn.
struct Knowledge {
  // [place]: as many draft tokens are right from here on, at least and at most; -1: it never drafts
  // here as far as is known.
  std::vector<int> least, most;
};
Knowledge knowledge_of(const TracedTurn& turn, int tokens, int longest, bool text_only);

// Time of a step of one arm that drafts `length` tokens, all of which are accepted; 0 = no draft.
using StepTime = std::function<double(int length)>;

// The best way through `tokens` tokens: right[a][place] draft tokens may be had of arm a there. A
// step of l draft tokens emits l + 1. Without any arm's draft a step emits one token, at the time
// plain.
struct Way {
  double steps = 0, ns = 0;
};
// Fewest steps, and the shortest time: two ways.
Way best_way(int tokens, const std::vector<std::vector<int>>& right,
             const std::vector<StepTime>& times, double plain);

// A figure between two bounds; without the upper one where nothing says so.
struct Bounds {
  double least = 0;
  std::optional<double> most;
  bool exact() const;  // equal, but for rounding
};

struct OracleRow {
  std::string arm;  // "" = the choice among all drafters at every step
  int n_prompts = 0;
  bool text_only = false;
  double tau = 0;                 // as measured; of the choice: that of the fastest arm
  double rows = 0;                // of a step
  double rows_needed = 0;         // less the draft tokens that were not accepted: exact
  double speedup = 0;             // the measured steps in modelled times
  Bounds best_tau, best_speedup;  // perfect length (and drafter)
  double reached() const { return best_speedup.least > 0 ? speedup / best_speedup.least : 0; }
};

struct OracleReport {
  std::vector<OracleRow> rows;  // by arm; the choice among them last, where there are several
  int answers = 0, left_out = 0;
  std::vector<std::string> notes;
};

// Times are modelled (VerifyCost of the run, DraftCost and the mean overhead of each arm): measured
// times of single steps would make the best way one of lucky steps. What it costs a drafter to
// catch up with text that others drafted is not in them. `tables`: T(n) of the run.
// Throws usage_error where no answers are shared.
OracleReport oracle_report(const results::ResultStore& store, const RunData& run,
                           const SharedAnswers& shared, const RowTimes& tables);

}  // namespace evalrun::reports
