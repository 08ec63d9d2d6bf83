#include "reports/predict/tree_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::reports {

namespace {

// Every second one in the order of the hashes: halves of equal size, mixed over tasks.
std::set<std::string> first_half(const RunData& run) {
  std::vector<std::pair<std::string, std::string>> order;
  for (const PromptInfo& p : run.prompts) order.emplace_back(base::sha256_hex(p.key), p.key);
  std::sort(order.begin(), order.end());
  std::set<std::string> half;
  for (size_t i = 0; i < order.size(); i += 2) half.insert(order[i].second);
  return half;
}

}  // namespace

TreeReport tree_report(const PredictSources& sources, const ArmInfo& arm, int nodes) {
  const Predictor whole(sources, arm);
  TreeReport report{.arm = arm.label, .places = whole.places()};
  for (const SampleRow& s : sources.run.samples)
    if (s.arm_id == arm.id) report.steps += static_cast<int>(s.steps);
  report.no_trees = whole.not_cut();
  if (whole.places().count.empty()) report.no_trees = "no draft nodes are stored: measure it again";
  if (report.no_trees.empty() && whole.chain())
    report.no_trees = "its drafts are chains; --k predicts shorter ones";
  if (report.no_trees.empty() && whole.prompts() < 2)
    report.no_trees = "a tree is chosen on other prompts than it is scored on, and there is one";
  if (!report.no_trees.empty()) return report;
  const std::set<std::string> half = first_half(sources.run);
  PredictSources chosen = sources, others = sources;
  chosen.prompts = [&](const std::string& key) { return half.contains(key); };
  others.prompts = [&](const std::string& key) { return !half.contains(key); };
  const Predictor chooser(chosen, arm), judge(others, arm);
  report.chosen_on = chooser.prompts();
  report.scored_on = judge.prompts();
  Draft draft;
  for (const RankedPath& path : best_paths(chooser.places(), nodes)) {
    // A place that the other half never tested says nothing there; the trees end before it.
    if (!judge.places().chance(path.path)) break;
    draft.tree.push_back(path.path);
    draft.name = fmt::format("{} nodes", draft.tree.size());
    const Prediction on_choice = chooser.predict(draft);
    report.trees.push_back(
        {draft.tree, path.gain, on_choice.tau ? on_choice.tau->value : 0, judge.predict(draft)});
  }
  if (report.trees.empty()) report.no_trees = "no draft was ever accepted";
  return report;
}

}  // namespace evalrun::reports
