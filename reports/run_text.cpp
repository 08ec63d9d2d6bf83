#include "reports/run_text.h"

#include <nlohmann/json.hpp>

namespace evalrun::reports {

std::string sampling_text(const ArmInfo& a) {
  if (a.greedy()) return "greedy";
  std::string s = fmt::format("temperature {}", a.temperature);
  if (a.top_k > 0) s += fmt::format(", top-k {}", a.top_k);
  if (a.top_p < 1) s += fmt::format(", top-p {}", a.top_p);
  return s;
}

std::string estimator_text(Estimator estimator) {
  return estimator == Estimator::kGeo ? "geometric mean over prompts" : "ratio of sums";
}

std::string setting_text(const ArmInfo& arm, const char* name, const char* before) {
  const nlohmann::json settings = nlohmann::json::parse(arm.settings, nullptr, false);
  if (!settings.is_object() || !settings.contains(name) || !settings[name].is_string()) return "";
  return before + settings[name].get<std::string>();
}

std::string prompts_text(const Report& report, const std::string& dataset, int64_t prompts) {
  const std::string plain = fmt::format("{} prompts", prompts);
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

std::vector<std::string> run_remarks(const Report& report) {
  std::vector<std::string> remarks;
  if (report.run.finished.empty())
    remarks.emplace_back("The run is unfinished: some cells are still to be measured.");
  if (report.hidden_faults > 0)
    remarks.push_back(
        fmt::format("{} generations with planted faults are left out.", report.hidden_faults));
  return remarks;
}

std::vector<std::string> dataset_remarks(const Report& report, const std::string& dataset) {
  std::vector<std::string> remarks;
  for (const ReportRow& r : report.rows) {
    if (r.dataset != dataset) continue;
    if (r.failed > 0)
      remarks.push_back(fmt::format("Failed: {} of {} generations of {}; they are in no figure.",
                                    r.failed, r.generations, r.arm.label));
    if (r.unpaired > 0)
      remarks.push_back(fmt::format(
          "Left out of {} and of its baseline: {} cells that only one of them has finished.",
          r.arm.label, r.unpaired));
  }
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
    if (r.dataset == dataset) prompts = std::max(prompts, r.n_prompts);
  return prompts;
}

}  // namespace evalrun::reports
