#include "reports/gate/gate_output.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "reports/data/matching.h"
#include "reports/data/pairing.h"

namespace evalrun::reports {

using results::Row;

namespace {

class OutputChecks {
 public:
  OutputChecks(const results::ResultStore& store, const RunData& run, Faults faults)
      : store_(store), run_(run), faults_(faults) {}

  std::vector<GateCheck> all() {
    check_failures();
    check_accounting();
    check_repeats();
    check_lossless();
    check_replay();
    return std::move(checks_);
  }

 private:
  void check_failures();
  void check_accounting();
  void check_repeats();
  void check_lossless();
  const ArmInfo* plain_of(const ArmInfo& arm) const;
  void check_replay();
  void add(GateCheck v) { checks_.push_back(std::move(v)); }
  std::string fault_filter() const {
    return faults_ == Faults::kLeaveOut ? " AND v.fault = ''" : "";
  }

  const results::ResultStore& store_;
  const RunData& run_;
  Faults faults_;
  std::vector<GateCheck> checks_;
};

std::string prompt_name(const RunData& data, int64_t id) {
  for (const PromptInfo& p : data.prompts)
    if (p.id == id) return p.name;
  return fmt::format("prompt {}", id);
}

void OutputChecks::check_failures() {
  int64_t all = 0, failed = 0;
  store_.query(
      "SELECT a.label, sum(v.generations), sum(v.failed) FROM v_count v JOIN arm a ON a.id = "
      "v.arm_id WHERE v.run_id = ?" +
          fault_filter() + " GROUP BY a.id ORDER BY a.id",
      {run_.run.id}, [&](const Row& r) {
        all += r.integer(1), failed += r.integer(2);
        if (r.integer(2) > 0)
          add(gate_check("failures", r.text(0), Outcome::kCorrectness,
                         fmt::format("{} of {} generations failed", r.integer(2), r.integer(1)),
                         r.integer(1)));
        return true;
      });
  if (failed == 0) add(gate_check("failures", "", Outcome::kOk, "no generation failed", all));
}

void OutputChecks::check_accounting() {
  bool found = false;
  store_.query(
      "SELECT a.label, v.problem, count(*) FROM v_accounting v JOIN arm a ON a.id = v.arm_id "
      "WHERE v.run_id = ?" +
          fault_filter() + " GROUP BY a.id, v.problem ORDER BY a.id",
      {run_.run.id}, [&](const Row& r) {
        found = true;
        add(gate_check("accounting", r.text(0), Outcome::kCorrectness,
                       fmt::format("miscounted: {} ({} turns)", r.text(1), r.integer(2)),
                       r.integer(2)));
        return true;
      });
  if (!found)
    add(gate_check("accounting", "", Outcome::kOk, "every step and token is accounted for",
                   static_cast<int64_t>(run_.samples.size())));
}

void OutputChecks::check_repeats() {
  std::map<int64_t, int64_t> unstable;
  std::set<int64_t> servers;  // their pieces differ, and they promise nothing
  for (const ArmInfo& a : run_.arms)
    if (is_server(a)) servers.insert(a.id);
  for (const SampleRow& s : run_.samples)
    if (!s.stable && !servers.contains(s.arm_id)) ++unstable[s.arm_id];
  for (const ArmInfo& a : run_.arms)
    // Arms that carry state are checked by the tokens of their median repeats only, below.
    if (unstable.contains(a.id) && varying_steps(a) != "carry state")
      add(gate_check(
          "repeats", a.label, Outcome::kCorrectness,
          fmt::format("repeats of the same seed gave other tokens or counters on {} prompts",
                      unstable.at(a.id)),
          unstable.at(a.id)));
  if (unstable.empty())
    add(gate_check("repeats", "", Outcome::kOk, "every repeat gave the same tokens and counters",
                   static_cast<int64_t>(run_.samples.size())));
}

// What tokens are compared with: where a server is the baseline, plain decoding by this program,
// null where that was not measured.
const ArmInfo* OutputChecks::plain_of(const ArmInfo& arm) const {
  const ArmInfo* reference = run_.reference(arm);
  if (reference == nullptr || !is_server(*reference)) return reference;
  for (const ArmInfo& a : run_.arms)
    if (a.method == "ar" && a.role != "aa" && a.batch == arm.batch) return &a;
  return nullptr;
}

// Outputs of a method that promises it equal the run's own plain decoding of the same model, token
// by token.
void OutputChecks::check_lossless() {
  for (const ArmInfo& a : run_.arms) {
    const ArmInfo* plain = plain_of(a);
    if (plain == nullptr || a.id == plain->id || !promises_tokens(a)) continue;
    if (replayed(a)) continue;  // same tokens by force: check_replay()
    if (plain->model_hash != a.model_hash) {
      add(gate_check(
          "lossless", a.label, Outcome::kInconclusive,
          "no arm of this run is plain decoding of the same model: measure ar_tuned with "
          "its weights, too",
          0));
      continue;
    }
    const auto reference = cells_of(run_, plain->id);
    int64_t compared = 0, different = 0;
    std::string first;
    for (const auto& [cell, s] : cells_of(run_, a.id)) {
      const auto it = reference.find(cell);
      if (it == reference.end()) continue;
      ++compared;
      if (it->second->tokens_hash == s->tokens_hash) continue;
      if (different++ == 0) first = prompt_name(run_, cell.first);
    }
    if (different > 0)
      add(gate_check("lossless", a.label, Outcome::kCorrectness,
                     fmt::format("tokens differ from plain decoding on {} of {} prompts, first {}",
                                 different, compared, first),
                     compared));
    else
      add(gate_check("lossless", a.label, Outcome::kOk, "same tokens as plain decoding", compared));
  }
}

// A lossless method that was made to follow plain decoding's text wanted no other token anywhere.
void OutputChecks::check_replay() {
  for (const ArmInfo& a : run_.arms) {
    if (!replayed(a) || a.lossy()) continue;
    int64_t asked = 0, differing = 0;
    store_.query(
        "SELECT coalesce(sum(v.asked), 0), coalesce(sum(v.differing), 0) FROM v_divergence v "
        "WHERE v.arm_id = ?" +
            fault_filter(),
        {a.id}, [&](const Row& r) {
          asked = r.integer(0), differing = r.integer(1);
          return false;
        });
    if (differing > 0)
      add(gate_check("lossless", a.label, Outcome::kCorrectness,
                     fmt::format("following plain decoding's text, it would have gone on otherwise "
                                 "at {} of {} places",
                                 differing, asked),
                     asked));
    else
      add(gate_check("lossless", a.label, Outcome::kOk,
                     "following plain decoding's text, it wanted the same tokens", asked));
  }
}

}  // namespace

std::vector<GateCheck> output_checks(const results::ResultStore& store, const RunData& run,
                                     Faults faults) {
  return OutputChecks(store, run, faults).all();
}

std::vector<GateCheck> equality_checks(const RunData& base, const RunData& current) {
  std::vector<GateCheck> checks;
  for (const ArmInfo& a : base.arms) {
    if (!promises_tokens(a) && (base.run.commit != current.run.commit || !varying_steps(a).empty()))
      continue;
    const MatchedArm m = match_arm(base, current, a.label, "");
    if (m.same_tokens < m.cells)
      checks.push_back(
          gate_check("tokens", a.label, Outcome::kCorrectness,
                     fmt::format("tokens differ from the baseline's on {} of {} prompts, first {}",
                                 m.cells - m.same_tokens, m.cells, m.first_changed),
                     m.cells));
    else
      checks.push_back(
          gate_check("tokens", a.label, Outcome::kOk, "same tokens as the baseline", m.cells));
    if (!varying_steps(a).empty())
      checks.push_back(gate_check("counters", a.label, Outcome::kOk,
                                  "not compared: its steps follow the machine or what ran before",
                                  m.cells));
    else if (m.same_steps < m.cells)
      checks.push_back(gate_check(
          "counters", a.label, Outcome::kCorrectness,
          fmt::format("drafted, accepted or emitted counts differ from the baseline's on {} of {} "
                      "prompts, first {} (tau {:.4f} -> {:.4f})",
                      m.cells - m.same_steps, m.cells, m.first_recounted,
                      m.a.method.steps > 0 ? m.a.method.emitted / m.a.method.steps : 0.0,
                      m.b.method.steps > 0 ? m.b.method.emitted / m.b.method.steps : 0.0),
          m.cells));
    else
      checks.push_back(
          gate_check("counters", a.label, Outcome::kOk, "same steps as the baseline", m.cells));
  }
  return checks;
}

}  // namespace evalrun::reports
