#include "reports/predict/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/base/error.h"
#include "reports/data/parameters.h"

namespace evalrun::reports {
namespace {

using results::StepRecord;

// How far a draft gets from each place on: `right` of consecutive tokens, `longest` at most.
std::vector<int> runs(const std::vector<bool>& right, int longest) {
  std::vector<int> run(right.size());
  int now = 0;
  for (size_t p = right.size(); p-- > 0;) {
    now = right[p] ? std::min(now + 1, longest) : 0;
    run[p] = now;
  }
  return run;
}

}  // namespace

bool text_only(const ArmInfo& arm) {
  const Parameters parameters = parse_parameters(arm.params);
  const auto is = [&](const char* name, const char* value) {
    const auto found = parameters.find(name);
    return found != parameters.end() && found->second == value;
  };
  return arm.greedy() && (arm.method == "sps" || arm.method == "self_spec") &&
         !is("adaptive", "true") &&
         (!parameters.contains("schedule") || is("schedule", "constant"));
}

Knowledge knowledge_of(const TracedTurn& turn, int tokens, int longest, bool text_only) {
  const auto n = static_cast<size_t>(tokens);
  Knowledge k;
  if (!text_only) {
    k.least.assign(n, -1), k.most.assign(n, -1);
    size_t place = 0;
    for (const StepRecord& s : turn.steps) {
      if (place < n && s.drafted_depth > 0)
        k.least[place] = k.most[place] = std::min(s.accepted, s.emitted);
      place += static_cast<size_t>(s.emitted);
    }
    return k;
  }
  std::vector<bool> accepted(n, false), possible(n, true);
  size_t place = 0;
  for (const StepRecord& s : turn.steps) {
    const auto right = static_cast<size_t>(std::min(s.accepted, s.emitted));
    for (size_t i = 0; i < right; ++i) accepted[place + i] = true;
    if (s.emitted > s.accepted && s.accepted < s.drafted_depth) possible[place + right] = false;
    place += static_cast<size_t>(s.emitted);
  }
  k.least = runs(accepted, longest);
  k.most = runs(possible, longest);
  return k;
}

Way best_way(int tokens, const std::vector<std::vector<int>>& right,
             const std::vector<StepTime>& times, double plain) {
  const auto n = static_cast<size_t>(tokens);
  std::vector<double> steps(n + 1, 0), ns(n + 1, 0);
  for (size_t p = n; p-- > 0;) {
    steps[p] = 1 + steps[p + 1], ns[p] = plain + ns[p + 1];
    for (size_t a = 0; a < right.size(); ++a)
      for (int l = 1; l <= right[a][p]; ++l) {
        // The last draft token may be the answer's last: then the target adds none.
        const size_t next = std::min(n, p + static_cast<size_t>(l) + 1);
        steps[p] = std::min(steps[p], 1 + steps[next]);
        ns[p] = std::min(ns[p], times[a](l) + ns[next]);
      }
  }
  return {steps[0], ns[0]};
}

bool Bounds::exact() const { return most && std::fabs(*most - least) <= 1e-9 * std::fabs(least); }

namespace {

// An arm's steps and what they cost by the model.
struct Arm {
  const ArmInfo* info = nullptr;
  bool text_only = false;
  int longest = 0;
  double tokens = 0, steps = 0, rows = 0, refused_rows = 0, beside = 0, ns = 0;
  double overhead = 0;  // of a step, in nanoseconds
  std::optional<DraftCost> draft;
};

class Oracle {
 public:
  Oracle(const results::ResultStore& store, const RunData& run, const SharedAnswers& shared,
         const RowTimes& tables)
      : shared_(shared),
        verify_(VerifyTimes(store, run.run.id)
                    .of(shared.arms.front()->model_hash, shared.arms.front()->batch, 0),
                tables.of(static_cast<int>(shared.arms.front()->batch))) {
    for (size_t a = 0; a < shared.arms.size(); ++a) arms_.push_back(measure(a));
  }

  OracleReport report() const {
    OracleReport report;
    report.answers = static_cast<int>(shared_.answers.size());
    report.left_out = shared_.left_out;
    report.notes = shared_.notes;
    std::vector<size_t> all;
    for (size_t a = 1; a < arms_.size(); ++a) {
      report.rows.push_back(row({a}));
      all.push_back(a);
    }
    if (all.size() > 1) report.rows.push_back(row(all));
    return report;
  }

 private:
  Arm measure(size_t number) const {
    Arm arm;
    arm.info = shared_.arms[number];
    arm.text_only = text_only(*arm.info);
    std::vector<TracedAnswer> traces;
    double decode = 0, phases = 0;
    for (const SharedAnswer& answer : shared_.answers) {
      TracedAnswer& trace = traces.emplace_back();
      for (const SharedTurn& turn : answer.turns) {
        const TracedTurn& own = turn.arms[number];
        trace.turns.push_back(own);
        decode += static_cast<double>(own.decode_ns);
        for (const StepRecord& s : own.steps) {
          arm.longest = std::max(arm.longest, s.drafted_depth);
          arm.text_only = arm.text_only && s.drafted == s.drafted_depth;
          arm.tokens += s.emitted, arm.steps += 1, arm.rows += s.rows;
          arm.beside += s.rows - 1 - s.drafted;
          arm.refused_rows += s.drafted - std::min(s.accepted, s.emitted);
          phases += static_cast<double>(s.verify_ns) + static_cast<double>(s.draft_ns);
        }
      }
    }
    arm.overhead = arm.steps > 0 ? std::max(0.0, decode - phases) / arm.steps : 0;
    arm.draft.emplace(traces);
    for (const TracedAnswer& trace : traces)
      for (const TracedTurn& turn : trace.turns)
        for (const StepRecord& s : turn.steps)
          arm.ns += verify_.ns(s.rows) + arm.draft->ns(s.drafted_depth) + arm.overhead;
    return arm;
  }

  // Rows beside the draft are computed whatever its length.
  StepTime time_of(const Arm& arm) const {
    std::vector<double> ns;
    const int beside = arm.steps > 0 ? static_cast<int>(std::lround(arm.beside / arm.steps)) : 0;
    for (int l = 0; l <= arm.longest; ++l)
      ns.push_back(verify_.ns(1 + beside + l) + arm.draft->ns(l) + arm.overhead);
    return [ns = std::move(ns)](int length) { return ns[static_cast<size_t>(length)]; };
  }

  // The best way through all answers with the drafts of these arms.
  Way way(const std::vector<size_t>& members, bool upper) const {
    const double plain = verify_.ns(1) + arms_.front().overhead;
    std::vector<StepTime> times;
    for (const size_t m : members) times.push_back(time_of(arms_[m]));
    Way sum;
    for (const SharedAnswer& answer : shared_.answers)
      for (const SharedTurn& turn : answer.turns) {
        std::vector<std::vector<int>> right;
        for (const size_t m : members) {
          Knowledge k =
              knowledge_of(turn.arms[m], turn.tokens, arms_[m].longest, arms_[m].text_only);
          right.push_back(std::move(upper ? k.most : k.least));
        }
        const Way best = best_way(turn.tokens, right, times, plain);
        sum.steps += best.steps, sum.ns += best.ns;
      }
    return sum;
  }

  OracleRow row(const std::vector<size_t>& members) const {
    const Arm& plain = arms_.front();
    const Arm* arm = &arms_[members.front()];
    bool known = true;
    for (const size_t m : members) {
      if (arms_[m].ns < arm->ns) arm = &arms_[m];
      known = known && arms_[m].text_only;
    }
    OracleRow r;
    if (members.size() == 1) r.arm = arm->info->label;
    std::set<int64_t> prompts;
    for (const SharedAnswer& answer : shared_.answers) prompts.insert(answer.prompt_id);
    r.n_prompts = static_cast<int>(prompts.size());
    r.text_only = known;
    r.tau = arm->tokens / arm->steps;
    r.rows = arm->rows / arm->steps;
    r.rows_needed = (arm->rows - arm->refused_rows) / arm->steps;
    r.speedup = plain.ns / arm->ns;
    const Way least = way(members, false);
    r.best_tau.least = arm->tokens / least.steps;
    r.best_speedup.least = plain.ns / least.ns;
    if (known) {
      const Way most = way(members, true);
      r.best_tau.most = arm->tokens / most.steps;
      r.best_speedup.most = plain.ns / most.ns;
    }
    return r;
  }

  const SharedAnswers& shared_;
  VerifyCost verify_;
  std::vector<Arm> arms_;
};

}  // namespace

OracleReport oracle_report(const results::ResultStore& store, const RunData& run,
                           const SharedAnswers& shared, const RowTimes& tables) {
  const bool any_tokens =
      std::any_of(shared.answers.begin(), shared.answers.end(), [](const SharedAnswer& answer) {
        return std::any_of(answer.turns.begin(), answer.turns.end(),
                           [](const SharedTurn& turn) { return turn.tokens > 0; });
      });
  if (shared.arms.size() < 2 || !any_tokens)
    throw base::usage_error(
        fmt::format("{}: no answer that its arms share", run_title(run.run)),
        "a method must give plain decoding's tokens: decode greedily, or evalrun run --replay");
  return Oracle(store, run, shared, tables).report();
}

}  // namespace evalrun::reports
