#include "reports/gate/gate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/data/matching.h"
#include "reports/data/sessions.h"
#include "reports/format.h"
#include "reports/gate/compare.h"
#include "reports/gate/gate_quality.h"

namespace evalrun::reports {

using results::Row;

namespace {

base::ExitCode exit_code(Outcome o) {
  switch (o) {
    case Outcome::kCorrectness:
      return base::ExitCode::kCorrectness;
    case Outcome::kIncompatible:
      return base::ExitCode::kNoBaseline;
    case Outcome::kRegression:
      return base::ExitCode::kRegression;
    case Outcome::kInconclusive:
      return base::ExitCode::kInconclusive;
    default:
      return base::ExitCode::kOk;
  }
}

nlohmann::json settings_of(const ArmInfo& arm) {
  nlohmann::json settings = nlohmann::json::parse(arm.settings, nullptr, false);
  return settings.is_object() ? settings : nlohmann::json::object();
}

// Every setting that either arm has.
std::set<std::string> setting_names(const ArmInfo& a, const ArmInfo& b) {
  std::set<std::string> names;
  for (const ArmInfo* arm : {&a, &b}) {
    const nlohmann::json settings = settings_of(*arm);
    for (const auto& item : settings.items()) names.insert(item.key());
  }
  return names;
}

std::string setting_text(const ArmInfo& arm, const std::string& name) {
  const nlohmann::json settings = settings_of(arm);
  const auto it = settings.find(name);
  if (it == settings.end()) return "not set";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

class Gate {
 public:
  Gate(const std::vector<RunData>& base, const results::ResultStore& base_store,
       const std::vector<RunData>& current, const results::ResultStore& store,
       const GateOptions& options)
      : bases_(base),
        news_(current),
        base_(base.front()),
        new_(current.front()),
        base_store_(base_store),
        store_(store),
        options_(options) {
    result_.base = base_.run;
    result_.current = new_.run;
  }

  GateResult decide() {
    if (check_output()) check_speed();
    conclude();
    return std::move(result_);
  }

  // Everything but speed, of the first sessions; false where nothing can be compared.
  bool check_output() {
    check_failures();
    check_accounting();
    check_repeats();
    check_lossless();
    check_replay();
    if (!check_comparable()) return false;
    check_complete();
    check_tokens();
    check_quality();
    return true;
  }
  void add(Verdict v) { result_.verdicts.push_back(std::move(v)); }
  const std::vector<Verdict>& verdicts() const { return result_.verdicts; }

 private:
  std::string fault_filter() const {
    return options_.faults == Faults::kLeaveOut ? " AND v.fault = ''" : "";
  }

  // ---- the new run by itself ----

  void check_failures() {
    int64_t all = 0, failed = 0;
    store_.query(
        "SELECT a.label, sum(v.generations), sum(v.failed) FROM v_count v JOIN arm a ON a.id = "
        "v.arm_id WHERE v.run_id = ?" +
            fault_filter() + " GROUP BY a.id ORDER BY a.id",
        {new_.run.id}, [&](const Row& r) {
          all += r.integer(1), failed += r.integer(2);
          if (r.integer(2) > 0)
            add(verdict("failures", r.text(0), Outcome::kCorrectness,
                        fmt::format("{} of {} generations failed", r.integer(2), r.integer(1)),
                        r.integer(1)));
          return true;
        });
    if (failed == 0) add(verdict("failures", "", Outcome::kOk, "no generation failed", all));
  }

  void check_accounting() {
    bool found = false;
    store_.query(
        "SELECT a.label, v.problem, count(*) FROM v_accounting v JOIN arm a ON a.id = v.arm_id "
        "WHERE v.run_id = ?" +
            fault_filter() + " GROUP BY a.id, v.problem ORDER BY a.id",
        {new_.run.id}, [&](const Row& r) {
          found = true;
          add(verdict("accounting", r.text(0), Outcome::kCorrectness,
                      fmt::format("miscounted: {} ({} turns)", r.text(1), r.integer(2)),
                      r.integer(2)));
          return true;
        });
    if (!found)
      add(verdict("accounting", "", Outcome::kOk, "every step and token is accounted for",
                  static_cast<int64_t>(new_.samples.size())));
  }

  void check_repeats() {
    std::map<int64_t, int64_t> unstable;
    for (const SampleRow& s : new_.samples)
      if (!s.stable) ++unstable[s.arm_id];
    for (const ArmInfo& a : new_.arms)
      // Arms that carry state are checked by the tokens of their median repeats only, below.
      if (unstable.contains(a.id) && varying_steps(a) != "carry state")
        add(verdict(
            "repeats", a.label, Outcome::kCorrectness,
            fmt::format("repeats of the same seed gave other tokens or counters on {} prompts",
                        unstable.at(a.id)),
            unstable.at(a.id)));
    if (unstable.empty())
      add(verdict("repeats", "", Outcome::kOk, "every repeat gave the same tokens and counters",
                  static_cast<int64_t>(new_.samples.size())));
  }

  // Greedy outputs of a lossless method equal the run's own plain decoding of the same model, token
  // by token.
  void check_lossless() {
    for (const ArmInfo& a : new_.arms) {
      const ArmInfo* plain = new_.reference(a);
      if (plain == nullptr || a.id == plain->id || a.lossy() || !a.greedy()) continue;
      if (replayed(a)) continue;  // same tokens by force: check_replay()
      if (plain->model_hash != a.model_hash) {
        add(verdict("lossless", a.label, Outcome::kInconclusive,
                    "no arm of this run is plain decoding of the same model: measure ar_tuned with "
                    "its weights, too",
                    0));
        continue;
      }
      const auto reference = cells_of(new_, plain->id);
      int64_t compared = 0, different = 0;
      std::string first;
      for (const auto& [cell, s] : cells_of(new_, a.id)) {
        const auto it = reference.find(cell);
        if (it == reference.end()) continue;
        ++compared;
        if (it->second->tokens_hash == s->tokens_hash) continue;
        if (different++ == 0) first = prompt_name(new_, cell.first);
      }
      if (different > 0)
        add(verdict("lossless", a.label, Outcome::kCorrectness,
                    fmt::format("tokens differ from plain decoding on {} of {} prompts, first {}",
                                different, compared, first),
                    compared));
      else
        add(verdict("lossless", a.label, Outcome::kOk, "same tokens as plain decoding", compared));
    }
  }

  // A lossless method that was made to follow plain decoding's text wanted no other token anywhere.
  void check_replay() {
    for (const ArmInfo& a : new_.arms) {
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
        add(verdict("lossless", a.label, Outcome::kCorrectness,
                    fmt::format("following plain decoding's text, it would have gone on otherwise "
                                "at {} of {} places",
                                differing, asked),
                    asked));
      else
        add(verdict("lossless", a.label, Outcome::kOk,
                    "following plain decoding's text, it wanted the same tokens", asked));
    }
  }

  static std::string prompt_name(const RunData& data, int64_t id) {
    for (const PromptInfo& p : data.prompts)
      if (p.id == id) return p.name;
    return fmt::format("prompt {}", id);
  }

  // ---- against the baseline ----

  bool check_comparable() {
    std::vector<std::string> reasons;
    const auto differs = [&](const std::string& what, const std::string& was,
                             const std::string& is) {
      if (was != is) reasons.push_back(fmt::format("{} was {}, is {}", what, was, is));
    };
    if (base_.baseline() == nullptr) reasons.push_back("the baseline has no plain-decoding arm");
    if (new_.baseline() == nullptr) reasons.push_back("the run has no plain-decoding arm");
    for (const OtherMachine& m : other_machines(base_.run, new_.run))
      differs("the " + m.what, m.first, m.second);
    int methods = 0;
    for (const ArmInfo& a : base_.arms) {
      const ArmInfo* other = new_.arm(a.label);
      if (other == nullptr) {
        reasons.push_back(fmt::format("{} is in the baseline only", a.label));
        continue;
      }
      methods += a.drafts();
      const auto was = engine_mode(a), is = engine_mode(*other);
      for (const auto& [name, value] : was)
        if (name != "settings") differs(fmt::format("{}: {}", a.label, name), value, is.at(name));
      for (const std::string& name : setting_names(a, *other))
        differs(fmt::format("{}: {}", a.label, name), setting_text(a, name),
                setting_text(*other, name));
    }
    if (methods == 0 && reasons.empty()) reasons.push_back("the baseline has no method to compare");
    const auto was = prompts_by_key(base_), is = prompts_by_key(new_);
    const auto missing = [](const auto& from, const auto& in) {
      return std::count_if(from.begin(), from.end(),
                           [&](const auto& p) { return !in.contains(p.first); });
    };
    if (const auto n = missing(was, is))
      reasons.push_back(fmt::format("{} prompts of the baseline are missing", n));
    if (const auto n = missing(is, was))
      reasons.push_back(fmt::format("{} prompts are not in the baseline", n));
    for (const std::string& r : reasons)
      add(verdict("comparable", "", Outcome::kIncompatible, r, 0));
    if (reasons.empty())
      add(verdict("comparable", "", Outcome::kOk, "same model, prompts, settings and engine mode",
                  static_cast<int64_t>(was.size())));
    return reasons.empty();
  }

  void check_complete() {
    std::set<std::string> have;
    const auto cells = [](const RunData& d) {
      std::map<int64_t, std::string> arm, prompt;
      for (const ArmInfo& a : d.arms) arm[a.id] = a.label;
      for (const PromptInfo& p : d.prompts) prompt[p.id] = p.key;
      std::set<std::string> set;
      for (const SampleRow& s : d.samples)
        set.insert(fmt::format("{}\n{}\n{}", arm[s.arm_id], prompt[s.prompt_id], s.sample));
      return set;
    };
    const auto was = cells(base_), is = cells(new_);
    const auto missing =
        std::count_if(was.begin(), was.end(), [&](const auto& c) { return !is.contains(c); });
    if (missing > 0)
      add(verdict(
          "complete", "", Outcome::kInconclusive,
          fmt::format("{} of the baseline's {} cells are not measured", missing, was.size()),
          static_cast<int64_t>(was.size())));
  }

  // Without statistics: the same build, model and prompts must give the same tokens and, for the
  // same tokens, the same steps (so tau and the acceptance histogram are equal to the last digit).
  // A draw is only comparable when the same program drew it.
  void check_tokens() {
    for (const ArmInfo& a : base_.arms) {
      if (!a.greedy() && (base_.run.commit != new_.run.commit || !varying_steps(a).empty()))
        continue;
      const MatchedArm m = match_arm(base_, new_, a.label, "");
      if (m.same_tokens < m.cells)
        add(verdict("tokens", a.label, Outcome::kCorrectness,
                    fmt::format("tokens differ from the baseline's on {} of {} prompts, first {}",
                                m.cells - m.same_tokens, m.cells, m.first_changed),
                    m.cells));
      else
        add(verdict("tokens", a.label, Outcome::kOk, "same tokens as the baseline", m.cells));
      if (!varying_steps(a).empty())
        add(verdict("counters", a.label, Outcome::kOk,
                    "not compared: its steps follow the machine or what ran before", m.cells));
      else if (m.same_steps < m.cells)
        add(verdict(
            "counters", a.label, Outcome::kCorrectness,
            fmt::format(
                "drafted, accepted or emitted counts differ from the baseline's on {} of {} "
                "prompts, first {} (tau {:.4f} -> {:.4f})",
                m.cells - m.same_steps, m.cells, m.first_recounted,
                m.a.method.steps > 0 ? m.a.method.emitted / m.a.method.steps : 0.0,
                m.b.method.steps > 0 ? m.b.method.emitted / m.b.method.steps : 0.0),
            m.cells));
      else
        add(verdict("counters", a.label, Outcome::kOk, "same steps as the baseline", m.cells));
    }
  }

  void check_quality() {
    for (Verdict& v : quality_verdicts(base_store_, base_, store_, new_, options_))
      add(std::move(v));
  }

  // |mean log ratio| of the A/A arms over all sessions of a side, the largest.
  static double floor_of(const std::vector<RunData>& sessions) {
    std::map<std::string, std::vector<double>> means;
    for (const RunData& data : sessions)
      for (const ArmInfo& a : data.arms) {
        if (a.role != "aa") continue;
        const Pairing p =
            pair_with_reference(cells_of(data, a.id), cells_of(data, data.reference(a)->id),
                                [](int64_t) { return true; });
        const std::vector<double> logs = fastest_log_ratios(values_of(p.prompts));
        if (!logs.empty()) means[a.label].push_back(base::mean(logs));
      }
    double floor = 0;
    for (const auto& [label, of_sessions] : means)
      floor = std::max(floor, std::fabs(base::mean(of_sessions)));
    return floor;
  }

  void check_speed() {
    result_.noise_floor = std::max(floor_of(bases_), floor_of(news_));
    result_.margin = std::max(options_.max_regression, 2 * result_.noise_floor);
    const double worst = std::log1p(-std::min(result_.margin, 0.99));
    const double allowed = std::log1p(-std::min(options_.max_regression, 0.99));
    const double alpha = options_.alpha / std::max(1, options_.looks);
    std::vector<size_t> tested;
    std::vector<double> rises;  // p of "the speedup rose beyond the margin", as `tested`
    std::vector<Verdict> speed;
    for (const ArmInfo& a : base_.arms) {
      if (!a.drafts()) continue;
      const MatchedSessions m = match_sessions(bases_, news_, a.label, "");
      Verdict v = verdict("speed", a.label, Outcome::kInconclusive, "", 0);
      v.n = static_cast<int64_t>(m.logs_a.front().size());
      v.margin = result_.margin;
      const auto t = session_change(m.logs_a, m.logs_b, Scope::kFixedSet, 1 - 2 * alpha);
      if (!t) {
        v.reason = "fewer than two prompts have a speedup in both runs";
      } else {
        v.effect = std::expm1(t->mean), v.lo = std::expm1(t->interval.lo),
        v.hi = std::expm1(t->interval.hi);
        v.p_value = p_below(*t, worst);
        rises.push_back(1 - p_below(*t, -worst));
        // Noise widens what may be called a change, but never what may pass: a loss beyond the
        // asked-for limit that the data do not exclude stays open.
        v.outcome = t->interval.lo > -worst    ? Outcome::kImprovement
                    : t->interval.lo > allowed ? Outcome::kOk
                                               : Outcome::kInconclusive;
        v.reason = tok_s_text(m);
        v.causes = causes_of(m.a, m.b, m.same_tokens < m.cells,
                             -allowed);  // what is below the limit is no cause
        tested.push_back(speed.size());
      }
      speed.push_back(std::move(v));
    }
    holm(speed, tested);
    rises = base::adjusted_p(rises, base::Adjustment::kHolm);
    for (size_t k = 0; k < tested.size(); ++k) {
      Verdict& v = speed[tested[k]];
      if (*v.p_value < alpha) v.outcome = Outcome::kRegression;
      // A speedup that rose because plain decoding lost speed is a loss of this engine, and one
      // that may have done so is not fine yet.
      if (v.causes.empty() || v.causes.front() != Cause::kArSlower) continue;
      if (rises[k] < alpha)
        v.outcome = Outcome::kRegression;
      else if (std::log1p(*v.hi) > -allowed)
        v.outcome = Outcome::kInconclusive;
    }
    for (Verdict& v : speed) {
      if (v.outcome == Outcome::kInconclusive) v.causes.clear();  // nothing is shown
      if (v.effect)
        v.reason = fmt::format("{}speedup {:+.1f} % [{:+.1f}, {:+.1f}], margin {:.1f} %; {}",
                               causes_text(v.causes), 100 * *v.effect, 100 * *v.lo, 100 * *v.hi,
                               100 * *v.margin, v.reason);
      add(std::move(v));
    }
  }

  // Chance of a mean as low as this if the true change were `limit`. Without any spread the test
  // degenerates to a comparison.
  static double p_below(const SessionChange& t, double limit) {
    if (t.standard_error > 0)
      return base::student_t_cdf((t.mean - limit) / t.standard_error, t.dof);
    return t.mean < limit ? 0.0 : 1.0;
  }

  static std::string causes_text(const std::vector<Cause>& causes) {
    std::string text;
    for (const Cause c : causes)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(c));
    return text.empty() ? "" : text + ": ";
  }

  // The ratio hides what moved: tokens/s of both arms tell.
  static std::string tok_s_text(const MatchedSessions& m) {
    return fmt::format("method {:.1f} -> {:.1f} tok/s, AR {:.1f} -> {:.1f} tok/s",
                       m.a.method.fastest_tok_s(), m.b.method.fastest_tok_s(),
                       m.a.base.fastest_tok_s(), m.b.base.fastest_tok_s());
  }

  static void holm(std::vector<Verdict>& v, const std::vector<size_t>& tested) {
    std::vector<double> p;
    for (const size_t i : tested) p.push_back(*v[i].p_value);
    p = base::adjusted_p(p, base::Adjustment::kHolm);
    for (size_t k = 0; k < tested.size(); ++k) v[tested[k]].p_value = p[k];
  }

  void conclude() {
    std::stable_sort(result_.verdicts.begin(), result_.verdicts.end(),
                     [](const Verdict& x, const Verdict& y) { return x.outcome < y.outcome; });
    const Verdict& worst = result_.verdicts.front();
    result_.code = exit_code(worst.outcome);
    if (worst.outcome == Outcome::kOk)
      result_.summary = fmt::format("check: ok - {} checks passed, no speedup fell by more than {}",
                                    result_.verdicts.size(), percent(options_.max_regression, 1));
    else
      result_.summary = fmt::format("check: {} - {}{}{}", to_string(worst.outcome), worst.method,
                                    worst.method.empty() ? "" : ": ", worst.reason);
  }

  const std::vector<RunData>& bases_;
  const std::vector<RunData>& news_;
  const RunData& base_;  // the first ones
  const RunData& new_;
  const results::ResultStore& base_store_;
  const results::ResultStore& store_;
  const GateOptions& options_;
  GateResult result_;
};

}  // namespace

bool GateResult::more_repeats_help() const {
  return code == base::ExitCode::kInconclusive &&
         std::any_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) {
           return v.metric == "speed" && v.outcome == Outcome::kInconclusive;
         });
}

GateResult evaluate_gate(const Sessions& base, const Sessions& current,
                         const GateOptions& options) {
  const auto load = [](const Sessions& side, Faults faults) {
    std::vector<RunData> runs;
    for (const int64_t run : side.runs) {
      runs.push_back(load_run(side.store, run, faults));
      if (runs.size() > 1) require_sessions_of_one_thing(runs[0], runs.back(), side.store.path());
    }
    return runs;
  };
  const std::vector<RunData> bases = load(base, Faults::kLeaveOut);
  const std::vector<RunData> news = load(current, options.faults);
  EVALRUN_CHECK(!bases.empty() && !news.empty(), "a side without sessions");
  Gate gate(bases, base.store, news, current.store, options);
  for (size_t i = 1; i < news.size(); ++i) {
    const std::vector<RunData> first = {bases[0]}, session = {news[i]};
    Gate other(first, base.store, session, current.store, options);
    other.check_output();
    for (Verdict v : other.verdicts())
      if (v.outcome != Outcome::kOk) {
        v.reason = fmt::format("session {}: {}", i + 1, v.reason);
        gate.add(std::move(v));
      }
  }
  return gate.decide();
}

GateResult evaluate_gate(const results::ResultStore& base_store, int64_t base_run,
                         const results::ResultStore& new_store, int64_t new_run,
                         const GateOptions& options) {
  return evaluate_gate({base_store, {base_run}}, {new_store, {new_run}}, options);
}

}  // namespace evalrun::reports
