#include "reports/table/run_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "reports/data/bootstrap.h"
#include "reports/figures/quotable.h"
#include "reports/format.h"

namespace evalrun::reports {

std::string run_line(const RunInfo& run) {
  return fmt::format("evalrun {} · {} · suite {} · commit {} · {}", run.version, run_title(run),
                     run.suite, run.commit, run.started);
}

std::string dataset_name(const std::string& dataset) {
  return dataset == "all" ? "all data sets" : dataset;
}

std::string weights_text(const ArmInfo& arm) {
  if (is_server(arm)) return "the server's weights";
  return arm.dtype + setting_text(arm, "kv_dtype", ", KV ");
}

std::string max_new_text(const ArmInfo& arm) {
  return fmt::format("{}{}", arm.max_new, arm.ignore_eos ? " (stop tokens ignored)" : "");
}

std::string noise_floor_text(const ReportRow& aa) {
  return fmt::format("Noise floor{}: {} against itself gives {}; smaller differences mean nothing.",
                     aa.arm.batch > 1 ? fmt::format(" at batch {}", aa.arm.batch) : "",
                     is_plain_label(aa.reference) ? "plain decoding" : aa.reference,
                     with_interval(aa.speed.speedup, aa.speed.interval, aa.speed.n_eff, 3));
}

std::string sampling_text(const ArmInfo& a) {
  if (a.greedy()) return "greedy";
  std::string s = fmt::format("temperature {}", a.temperature);
  if (a.top_k > 0) s += fmt::format(", top-k {}", a.top_k);
  if (a.top_p < 1) s += fmt::format(", top-p {}", a.top_p);
  // Runs of 1.0 and before have no sampler; the usual one is not worth a word.
  if (const std::string sampler = setting_text(a, "sampler", "drawn by ");
      sampler == "drawn by gumbel")
    s += ", " + sampler + " noise";
  return s;
}

namespace {

std::string place(const RunInfo& run, const ArmInfo& arm, const std::string& isa) {
  if (is_server(arm)) return "server";
  // Merged from machines with other numbers of threads.
  const std::string threads =
      arm.threads > 0 ? base::plural(arm.threads, "thread") : "threads of each machine's own";
  return arm.device == "cpu" ? fmt::format("cpu{}, {}", isa, threads)
                             : fmt::format("{}{}, {}", arm.device, isa, machine_name(run));
}

}  // namespace

std::string place_text(const RunInfo& run, const ArmInfo& arm) { return place(run, arm, ""); }

std::string engine_text(const RunInfo& run, const ArmInfo& arm) {
  return place(run, arm, fmt::format(" ({}{})", arm.isa, setting_text(arm, "bits", " ")));
}

std::string estimator_text(Estimator estimator) {
  switch (estimator) {
    case Estimator::kSum:
      return "ratio of sums";
    case Estimator::kGeo:
      return "geometric mean over prompts";
    case Estimator::kLegacy:
      return "mean of speeds over mean of speeds, of whole requests (the convention of Spec-Bench "
             "and EAGLE, not of this program)";
    case Estimator::kLegacyDecode:
      return "mean of speeds over mean of speeds, of decoding alone (Spec-Bench and EAGLE time the "
             "prefill, too)";
  }
  EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
}

std::string interval_text(IntervalKind interval) {
  return interval == IntervalKind::kStudent
             ? "Student's t over prompts"
             : fmt::format("percentiles of a paired bootstrap over prompts, {} resamples",
                           count(kResamples));
}

std::string speedup_header(Estimator estimator) {
  switch (estimator) {
    case Estimator::kLegacy:
      return "speedup as Spec-Bench/EAGLE";
    case Estimator::kLegacyDecode:
      return "speedup of mean speeds";
    default:
      return "speedup";
  }
}

std::string setting_text(const ArmInfo& arm, const char* name, const char* before) {
  const nlohmann::json settings = nlohmann::json::parse(arm.settings, nullptr, false);
  if (!settings.is_object() || !settings.contains(name) || !settings[name].is_string()) return "";
  return before + settings[name].get<std::string>();
}

std::string prompts_text(const Report& report, const std::string& dataset, int64_t prompts) {
  const std::string plain = base::plural(prompts, "prompt");
  const size_t part = dataset.rfind(" / ");  // of a report by category or language
  const auto found = report.run.environment.find("data." + dataset.substr(0, part));
  if (found == report.run.environment.end()) return plain;
  const nlohmann::json data = nlohmann::json::parse(found->second, nullptr, false);
  if (!data.is_object()) return plain;
  const auto official = data.value("official", nlohmann::json());
  const auto verification = data.value("verification", nlohmann::json());
  std::string text = plain;
  if (part == std::string::npos && official.is_number_integer() &&
      official.get<int64_t>() > prompts)
    text = fmt::format("{} of {} prompts", prompts, official.get<int64_t>());
  if (verification == "unverified" || verification == "stand-in")
    text += ", " + verification.get<std::string>();
  return text;
}

std::string unfinished_remark(const RunInfo& run) {
  return fmt::format("Unfinished: {}; {}", stored_text(run), resume_text(run));
}

std::vector<std::string> run_remarks(const Report& report) {
  std::vector<std::string> remarks;
  if (report.run.finished.empty()) remarks.push_back(unfinished_remark(report.run));
  if (report.hidden_faults > 0)
    remarks.push_back(
        fmt::format("{} generations with planted faults are left out.", report.hidden_faults));
  if (report.other_machine > 0)
    remarks.push_back(
        fmt::format("Left out: {}, as another machine measured the plain decoding of the prompt.",
                    base::plural(report.other_machine, "generation")));
  // Of several data sets, the pooled rows answer.
  const std::string conditions = conditions_text(
      report.conditions, report.rows.empty() ? std::vector<std::string>()
                                             : too_noisy(report, report.rows.back().dataset));
  if (!conditions.empty()) remarks.push_back(conditions);
  for (std::string& remark : gpu_remarks(report.gpu_disturbances))
    remarks.push_back(std::move(remark));
  return remarks;
}

namespace {

// "pld 1.31 [1.20, 1.43], ...": speedups over the answers that do not run in a loop.
std::string without_loops(const Report& report, const std::string& dataset) {
  std::vector<std::string> arms;
  for (const ReportRow& r : report.rows)
    if (r.dataset == dataset && r.loops.speedup_without && r.arm.role != "aa")
      arms.push_back(fmt::format(
          "{} {}", r.arm.label,
          with_interval(r.loops.speedup_without, r.loops.interval_without, r.loops.n_eff_without)));
  return fmt::format("{}", fmt::join(arms, ", "));
}

void add_loops(const Report& report, const std::string& dataset, std::vector<std::string>& out) {
  // Arms of one text have one count: a lossless method loops where plain decoding does.
  std::vector<std::pair<std::string, std::vector<std::string>>> counts;
  for (const ReportRow& r : report.rows) {
    if (r.dataset != dataset || r.loops.degenerate == 0) continue;
    const std::string count = fmt::format("{} of {}", r.loops.degenerate, r.loops.cells);
    const auto found =
        std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == count; });
    if (found != counts.end())
      found->second.push_back(r.arm.label);
    else
      counts.push_back({count, {r.arm.label}});
  }
  if (counts.empty()) return;
  std::string what = "Answers that run in a loop, which every drafter predicts: ";
  for (size_t i = 0; i < counts.size(); ++i)
    what += fmt::format("{}{} ({})", i > 0 ? "; " : "", counts[i].first,
                        fmt::join(counts[i].second, ", "));
  what += ".";
  if (report.exclude_degenerate) {
    out.push_back(what + " They are left out of the speed figures, of both arms.");
    return;
  }
  const std::string without = without_loops(report, dataset);
  out.push_back(what + " They are kept" +
                (without.empty() ? std::string(".")
                                 : fmt::format("; the speedup without them: {}.", without)));
}

// Where few long answers take most of the time, or prompts belong together, an interval rests on
// few.
void add_weights(const Report& report, const std::string& dataset, std::vector<std::string>& out) {
  std::vector<std::string> arms;
  int64_t prompts = 0;
  for (const ReportRow& r : report.rows) {
    const auto n = static_cast<double>(r.counts.prompts);
    if (r.dataset != dataset || !r.speed.interval || r.speed.n_eff >= n / 2) continue;
    prompts = std::max(prompts, r.counts.prompts);
    arms.push_back(fmt::format("{} {}", r.arm.label, number(r.speed.n_eff, 1)));
  }
  if (!arms.empty())
    out.push_back(
        fmt::format("Prompts of equal weight, each on its own, that {} are worth (n_eff): {}.",
                    base::plural(prompts, "prompt"), fmt::join(arms, ", ")));
}

// Why there is no interval although there are several prompts.
void add_one_units(const Report& report, const std::string& dataset,
                   std::vector<std::string>& out) {
  std::set<int64_t> batches;
  for (const ReportRow& r : report.rows)
    if (r.dataset == dataset && r.speed.n_eff == 1 && r.counts.prompts > 1 && !r.speed.interval)
      batches.insert(r.arm.batch);
  if (report.scope == Scope::kNewKinds) {
    if (!batches.empty())
      out.push_back("No interval for new kinds: all prompts here are of one kind.");
    return;
  }
  for (const int64_t batch : batches)
    out.push_back(
        batch > 1
            ? fmt::format("No interval at batch {}: all prompts here are of one batch.", batch)
            : "No interval: all prompts here are of one group.");
}

// Where the whole job gains another factor than a typical prompt, and why.
void add_gaps(const Report& report, const std::string& dataset, std::vector<std::string>& out) {
  std::vector<std::string> arms;
  for (const ReportRow& r : report.rows) {
    if (r.dataset != dataset || !r.speed.gap || r.arm.role != "method") continue;
    const EstimatorGap& gap = *r.speed.gap;
    const char* why = -gap.by_spread > std::fabs(gap.by_length)
                          ? "slow prompts take more of the time"
                      : gap.by_length < 0 ? "long answers gain less"
                                          : "long answers gain more";
    arms.push_back(fmt::format("{} {} and {} ({})", r.arm.label, number(r.speed.speedup, 2),
                               number(r.speed.geo, 2), why));
  }
  if (!arms.empty())
    out.push_back(
        fmt::format("The speedup of the whole job (ratio of sums) and that of a typical prompt "
                    "(geometric mean) lie outside each other's interval: {}.",
                    fmt::join(arms, ", ")));
}

void add_replay(const Report& report, const std::string& dataset, std::vector<std::string>& out) {
  std::vector<std::string> arms;
  for (const ReportRow& r : report.rows)
    if (r.dataset == dataset && r.replay && r.arm.role == "method")
      arms.push_back(fmt::format("{} {}", r.arm.label, replay_text(r)));
  if (!arms.empty())
    out.push_back(fmt::format(
        "Replayed: every arm was made to follow plain decoding's text while it really drafted and "
        "verified, so that the tokens are the same by force. Places where an arm would have gone "
        "on otherwise: {}.",
        fmt::join(arms, ", ")));
}

}  // namespace

std::string replay_text(const ReportRow& r) {
  if (!r.replay) return "-";
  std::string text = fmt::format("{} of {}", count(static_cast<double>(r.replay->differing)),
                                 count(static_cast<double>(r.replay->asked)));
  if (r.replay->largest_gap)
    text += fmt::format(", largest gap {}", number(r.replay->largest_gap, 3));
  return text;
}

std::vector<std::string> dataset_remarks(const Report& report, const std::string& dataset) {
  std::vector<std::string> remarks;
  for (const ReportRow& r : report.rows) {
    if (r.dataset != dataset) continue;
    if (r.counts.failed > 0)
      remarks.push_back(fmt::format("Failed: {} of {} generations of {}; they are in no figure.",
                                    r.counts.failed, r.counts.generations, r.arm.label));
    if (r.counts.unpaired > 0)
      remarks.push_back(fmt::format(
          "Left out of {} and of its baseline: {} cells that only one of them has finished.",
          r.arm.label, r.counts.unpaired));
  }
  add_weights(report, dataset, remarks);
  add_one_units(report, dataset, remarks);
  add_gaps(report, dataset, remarks);
  add_loops(report, dataset, remarks);
  add_replay(report, dataset, remarks);
  return remarks;
}

std::string quality_remarks(const Quality& q) {
  std::string remarks = fmt::format("n={}", q.n);
  if (q.unscored > 0) remarks += fmt::format(", {} unscored", q.unscored);
  if (q.suspicious > 0) remarks += fmt::format(", {} suspicious", q.suspicious);
  if (q.unsandboxed > 0) remarks += fmt::format(", {} UNSANDBOXED", q.unsandboxed);
  if (q.compared > 0) remarks += fmt::format(", {} differ", q.differing);
  return remarks;
}

std::vector<std::string> datasets_of(const Report& report) {
  std::vector<std::string> names;
  for (const ReportRow& r : report.rows)
    if (names.empty() || names.back() != r.dataset) names.push_back(r.dataset);
  return names;
}

int64_t prompts_of(const Report& report, const std::string& dataset) {
  int64_t prompts = 0;
  for (const ReportRow& r : report.rows)
    if (r.dataset == dataset) prompts = std::max(prompts, r.counts.prompts);
  return prompts;
}

}  // namespace evalrun::reports
