#include "reports/predict/confirm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "reports/data/parameters.h"

namespace evalrun::reports {

namespace {

constexpr const char* kLength = "k";
constexpr const char* kTree = "tree";

// The draft of `arm` as one cut from those of `source`; nullopt where anything else differs.
std::optional<Draft> cut_of(const ArmInfo& arm, const ArmInfo& source, const ReadTree& read_tree) {
  if (arm.method != source.method) return std::nullopt;
  auto mode = engine_mode(arm), source_mode = engine_mode(source);
  for (const char* name : {"parameters", "settings"}) {  // settings say what parameters do
    mode.erase(name);
    source_mode.erase(name);
  }
  if (mode != source_mode) return std::nullopt;
  const Parameters own = parse_parameters(arm.params), other = parse_parameters(source.params);
  std::vector<std::string> differing;
  for (const auto& [name, value] : own)
    if (const auto found = other.find(name); found == other.end() || found->second != value)
      differing.push_back(name);
  if (differing.size() != 1 || own.size() != other.size()) return std::nullopt;
  Draft draft;
  const std::string& value = own.at(differing[0]);
  draft.name = fmt::format("{}={}", differing[0], value);
  if (differing[0] == kLength) {
    const auto length = number_of(value);
    if (!length || *length < 1) return std::nullopt;
    draft.length = static_cast<int>(*length);
    return draft;
  }
  if (differing[0] != kTree) return std::nullopt;
  const auto tree = read_tree(value);
  if (!tree) return std::nullopt;
  draft.tree = *tree;
  return draft;
}

std::set<std::string> prompts_of(const RunData& run, const ArmInfo& arm) {
  const ArmInfo* reference = run.reference(arm);
  std::set<int64_t> own, plain;
  for (const SampleRow& s : run.samples) {
    if (s.arm_id == arm.id) own.insert(s.prompt_id);
    if (reference != nullptr && s.arm_id == reference->id) plain.insert(s.prompt_id);
  }
  std::set<std::string> keys;
  for (const PromptInfo& p : run.prompts)
    if (own.contains(p.id) && plain.contains(p.id)) keys.insert(p.key);
  return keys;
}

// One arm from one source, over the prompts they share.
struct Attempt {
  std::optional<Confirmation> row;
  int depth = 0;    // of the source's drafts
  std::string why;  // there is no row
};

Attempt attempt(PredictSources source, const ArmInfo& source_arm, PredictSources measured,
                const ArmInfo& arm, const Draft& draft) {
  const std::set<std::string> theirs = prompts_of(measured.run, arm);
  std::set<std::string> both;
  for (const std::string& key : prompts_of(source.run, source_arm))
    if (theirs.contains(key)) both.insert(key);
  if (both.empty()) return {{}, 0, fmt::format("{} has none of its prompts", source_arm.label)};
  source.prompts = measured.prompts = [&](const std::string& key) { return both.contains(key); };
  if (source.store.path() == measured.store.path() && source.run.run.id == measured.run.run.id)
    source.left_out_arm = arm.id;
  const Predictor predictor(source, source_arm);
  if (std::string why = predictor.why_not(draft); !why.empty()) return {{}, 0, std::move(why)};
  const Predictor found(measured, arm);
  Confirmation row{arm.label, predictor.predict(draft), found.predict({}),
                   static_cast<int>(both.size())};
  if (!row.predicted.speedup || !row.measured.speedup)
    return {{}, 0, fmt::format("{} took no time", arm.label)};
  return {std::move(row), predictor.depth(), ""};
}

}  // namespace

std::optional<double> Confirmations::median_error() const {
  if (rows.empty()) return std::nullopt;
  std::vector<double> errors;
  for (const Confirmation& c : rows) errors.push_back(std::abs(c.error()));
  return base::median(errors);
}

Confirmations confirm(const PredictSources& source, const PredictSources& measured,
                      const ReadTree& read_tree) {
  Confirmations all;
  for (const ArmInfo& arm : measured.run.arms) {
    if (!arm.drafts()) continue;
    Attempt best;
    best.why = "no arm differs from it in k or tree only";
    for (const ArmInfo& from : source.run.arms) {
      const auto draft = cut_of(arm, from, read_tree);
      if (!draft || !from.drafts()) continue;
      Attempt next = attempt(source, from, measured, arm, *draft);
      if (!best.row || next.depth > best.depth) best = std::move(next);
    }
    if (best.row)
      all.rows.push_back(std::move(*best.row));
    else
      all.left_out.push_back(fmt::format("{} ({})", arm.label, best.why));
  }
  if (all.rows.empty())
    throw base::usage_error(
        fmt::format("run {} measures nothing that run {} could predict", measured.run.run.id,
                    source.run.run.id),
        "an arm is confirmed by one that differs in k or tree only and drafts less, on the same "
        "prompts: pld:k=10 predicts pld:k=3");
  return all;
}

}  // namespace evalrun::reports
