#include "reports/gate/gate_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "engine/base/stats.h"
#include "reports/data/design.h"
#include "reports/data/sessions.h"
#include "results/endpoint_queries.h"

namespace evalrun::reports {

namespace {

using results::AskedTwice;
using results::CountedAnswer;

// A server in both runs.
struct ServerPair {
  const ArmInfo* was;
  std::vector<CountedAnswer> then, now;
  AskedTwice twice;  // of both runs
};

AskedTwice agreement_of(const results::ResultStore& store, const RunData& run,
                        const ArmInfo& server) {
  AskedTwice all = results::asked_twice(store, server.id, server.id, 1);
  if (server.role != "baseline") return all;
  for (const ArmInfo& again : run.arms) {
    if (again.role != "aa" || !is_server(again)) continue;
    const AskedTwice of_aa = results::asked_twice(store, server.id, again.id, 0);
    all.answers += of_aa.answers, all.differing += of_aa.differing;
  }
  return all;
}

// Cells of both runs: (then, now).
std::vector<std::pair<const CountedAnswer*, const CountedAnswer*>> common_answers(
    const ServerPair& server) {
  std::map<std::pair<std::string, int64_t>, const CountedAnswer*> now;
  for (const CountedAnswer& answer : server.now) now[{answer.prompt_key, answer.sample}] = &answer;
  std::vector<std::pair<const CountedAnswer*, const CountedAnswer*>> common;
  for (const CountedAnswer& answer : server.then)
    if (const auto it = now.find({answer.prompt_key, answer.sample}); it != now.end())
      common.emplace_back(&answer, it->second);
  return common;
}

GateCheck answers_check(const ServerPair& server, double alpha) {
  const std::string& label = server.was->label;
  if (!server.was->greedy() && !arm_setting(*server.was, "seeded").empty())
    return gate_check("answers", label, Outcome::kOk,
                      "not compared: a seed does not make this server repeat an answer", 0);
  int64_t all = 0, changed = 0;
  for (const auto& [then, now] : common_answers(server))
    ++all, changed += then->tokens_hash != now->tokens_hash;
  AskedTwice twice = server.twice;
  std::string null = fmt::format("asked twice, it differs from itself on {} of {}", twice.differing,
                                 twice.answers);
  if (twice.answers == 0) {
    twice.answers = all;
    null = "it was never asked twice";
  }
  const double p = base::fisher_upper_p(changed, all, twice.differing, twice.answers);
  const bool other = p < alpha;
  GateCheck check = gate_check(
      "answers", label, other ? Outcome::kCorrectness : Outcome::kOk,
      fmt::format("{} of {} answers are the baseline's; {}", all - changed, all, null), all);
  if (changed > 0) check.p_value = p;
  return check;
}

// Sums over what a server counted.
struct DraftCounts {
  int64_t tokens = 0, steps = 0, drafted = 0, accepted = 0;
  void add(const CountedAnswer& answer) {
    tokens += answer.tokens, steps += answer.steps;
    drafted += answer.drafted, accepted += answer.accepted;
  }
  double tau() const {
    return steps > 0 ? static_cast<double>(tokens) / static_cast<double>(steps) : 0;
  }
  std::string alpha() const {
    return drafted > 0
               ? fmt::format("{:.3f}", static_cast<double>(accepted) / static_cast<double>(drafted))
               : "-";
  }
};

DraftCounts counts_of(const std::vector<CountedAnswer>& answers) {
  DraftCounts counts;
  for (const CountedAnswer& answer : answers)
    if (answer.counted) counts.add(answer);
  return counts;
}

std::optional<GateCheck> tau_check(const ServerPair& server, const PromptDesigns& designs,
                                   const GateOptions& options, double alpha) {
  const std::string& label = server.was->label;
  const DraftCounts then = counts_of(server.then), now = counts_of(server.now);
  if (then.drafted == 0) return std::nullopt;  // nothing that could be lost
  if (now.steps == 0)
    return gate_check("tau", label, Outcome::kRegression,
                      fmt::format("the server counts no steps any more, of which the baseline has "
                                  "tau {:.2f}: is its speculation on?",
                                  then.tau()),
                      0);
  std::map<std::string, std::pair<DraftCounts, DraftCounts>> by_prompt;
  std::map<std::string, int64_t> ids;
  for (const auto& [one, other] : common_answers(server)) {
    if (!one->counted || !other->counted) continue;
    by_prompt[one->prompt_key].first.add(*one);
    by_prompt[one->prompt_key].second.add(*other);
    ids[one->prompt_key] = one->prompt_id;
  }
  SessionLogs was(1), is(1);
  std::vector<int64_t> prompts;
  for (const auto& [key, counts] : by_prompt) {
    if (counts.first.tau() <= 0 || counts.second.tau() <= 0) continue;
    was[0].push_back(std::log(counts.first.tau()));
    is[0].push_back(std::log(counts.second.tau()));
    prompts.push_back(ids.at(key));
  }
  const std::string text = fmt::format("tau {:.3f} -> {:.3f}, alpha {} -> {}", then.tau(),
                                       now.tau(), then.alpha(), now.alpha());
  const auto n = static_cast<int64_t>(prompts.size());
  if (was == is) return gate_check("tau", label, Outcome::kOk, text, n);
  const auto change =
      session_change(was, is, Scope::kFixedSet, 1 - 2 * alpha, designs.of(prompts, 1));
  if (!change) return gate_check("tau", label, Outcome::kInconclusive, text + "; one prompt", n);
  const double allowed = std::log1p(-std::min(options.max_regression, 0.99));
  GateCheck check = gate_check("tau", label,
                               change->interval.hi < allowed   ? Outcome::kRegression
                               : change->interval.lo > allowed ? Outcome::kOk
                                                               : Outcome::kInconclusive,
                               "", n);
  check.effect = std::expm1(change->mean), check.lo = std::expm1(change->interval.lo),
  check.hi = std::expm1(change->interval.hi), check.margin = options.max_regression;
  check.reason =
      fmt::format("tau {:+.1f} % [{:+.1f}, {:+.1f}], margin {:.1f} %; {}", 100 * *check.effect,
                  100 * *check.lo, 100 * *check.hi, 100 * *check.margin, text);
  return check;
}

}  // namespace

std::vector<GateCheck> server_checks(const results::ResultStore& base_store, const RunData& base,
                                     const results::ResultStore& store, const RunData& current,
                                     const GateOptions& options) {
  std::vector<ServerPair> servers;
  for (const ArmInfo& arm : base.arms) {
    if (!is_server(arm) || arm.role == "aa") continue;
    const ArmInfo& same = *current.arm(arm.label);
    AskedTwice twice = agreement_of(base_store, base, arm);
    const AskedTwice of_now = agreement_of(store, current, same);
    twice.answers += of_now.answers, twice.differing += of_now.differing;
    servers.push_back({&arm, results::endpoint_answers(base_store, arm.id),
                       results::endpoint_answers(store, same.id), twice});
  }
  std::vector<GateCheck> checks;
  if (servers.empty()) return checks;
  const PromptDesigns designs(base.prompts, Scope::kFixedSet);
  const double alpha = options.alpha / static_cast<double>(servers.size());
  for (const ServerPair& server : servers) {
    checks.push_back(answers_check(server, alpha));
    if (auto tau = tau_check(server, designs, options, alpha)) checks.push_back(std::move(*tau));
  }
  return checks;
}

}  // namespace evalrun::reports
