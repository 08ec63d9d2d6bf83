#include "reports/figures/draft_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "reports/data/parameters.h"

namespace evalrun::reports {

namespace {

constexpr std::string_view kChain = "chain:";
constexpr int64_t kShortestRange = 128;  // tokens of context; further ranges double
constexpr size_t kLeastOfRange = 2;      // prompts: fewer have no interval

std::optional<int> whole_number(const std::string& text) {
  const std::optional<double> value = number_of(text);
  if (!value || *value < 1 || *value > 1e6) return std::nullopt;
  return static_cast<int>(*value);
}

// What arms of one drafter and batch share. A method whose tree says how long its drafts are may
// have a `k` that says something else.
std::string drafter_key(const ArmInfo& arm) {
  Parameters parameters = parse_parameters(arm.params);
  parameters.erase(parameters.contains("tree") ? "tree" : "k");
  std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", arm.method, arm.batch, batch_mode(arm),
                                arm.model_hash, arm.draft_hash);
  for (const auto& [name, value] : parameters) key += fmt::format("\n{}={}", name, value);
  return key;
}

}  // namespace

std::string ContextRange::text() const { return fmt::format("{} to {}", above + 1, up_to); }

const LengthSpeed* best_length(const std::vector<LengthSpeed>& lengths) {
  const auto best = std::max_element(
      lengths.begin(), lengths.end(),
      [](const LengthSpeed& a, const LengthSpeed& b) { return a.speedup.value < b.speedup.value; });
  return best == lengths.end() ? nullptr : &*best;
}

int chain_length(const ArmInfo& arm) {
  const Parameters parameters = parse_parameters(arm.params);
  if (const auto tree = parameters.find("tree"); tree != parameters.end())
    return tree->second.starts_with(kChain)
               ? whole_number(tree->second.substr(kChain.size())).value_or(0)
               : 0;
  const auto k = parameters.find("k");
  return k == parameters.end() ? 0 : whole_number(k->second).value_or(0);
}

std::string drafter_name(const ArmInfo& arm) {
  const std::string label = label_without_batch(arm);
  const size_t colon = label.find(':');
  if (colon == std::string::npos) return label;
  const bool by_tree = parse_parameters(arm.params).contains("tree");
  std::string name = label.substr(0, colon);
  char before = ':';
  for (const auto& [parameter, value] : parse_parameters(label.substr(colon + 1))) {
    if (parameter == (by_tree ? "tree" : "k")) continue;
    name += fmt::format("{}{}={}", before, parameter, value);
    before = ',';
  }
  return name;
}

std::vector<int> lengths_up_to(int longest) {
  std::vector<int> lengths;
  for (const int k : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48})
    if (k < longest) lengths.push_back(k);
  if (longest > 0) lengths.push_back(longest);
  return lengths;
}

LengthBuilder::LengthBuilder(const PredictSources& sources, const PromptDesigns& designs,
                             const std::map<int64_t, ArmCells>& cells,
                             const std::map<int64_t, double>& contexts)
    : sources_(sources), designs_(designs), cells_(cells), contexts_(contexts) {}

std::map<int64_t, DraftLengths> LengthBuilder::lengths(const std::set<int64_t>& prompts) {
  std::map<int64_t, DraftLengths> found;
  if (!sources_.tables) return found;
  const auto by_context = ranges(prompts);
  for (const Drafter& drafter : drafters()) {
    const ArmInfo& longest = *drafter.front();
    const Predictor* predictor = predictor_of(longest);
    if (predictor == nullptr) continue;
    DraftLengths lengths{.drafter = drafter_name(longest),
                         .from = longest.label,
                         .table_context = sources_.tables.context,
                         .at = {}};
    lengths.at.push_back(
        lengths_at(drafter, *predictor, [&](int64_t prompt) { return prompts.contains(prompt); }));
    if (lengths.at.front().predicted.empty()) continue;
    for (const auto& [range, of_range] : by_context) {
      const std::set<int64_t>& kept = of_range;
      LengthsAt at =
          lengths_at(drafter, *predictor, [&](int64_t prompt) { return kept.contains(prompt); });
      if (at.predicted.empty()) continue;
      at.context = range;
      lengths.at.push_back(std::move(at));
    }
    found.emplace(longest.id, std::move(lengths));
  }
  return found;
}

std::vector<LengthBuilder::Drafter> LengthBuilder::drafters() const {
  std::map<std::string, size_t> place;
  std::vector<Drafter> list;
  for (const ArmInfo& arm : sources_.run.arms) {
    if (!arm.drafts() || standing(arm) != Standing::kLossless) continue;
    const auto [found, is_new] = place.try_emplace(drafter_key(arm), list.size());
    if (is_new) list.emplace_back();
    list[found->second].push_back(&arm);
  }
  for (Drafter& drafter : list)
    std::stable_sort(drafter.begin(), drafter.end(), [](const ArmInfo* a, const ArmInfo* b) {
      return chain_length(*a) > chain_length(*b);
    });
  return list;
}

const Predictor* LengthBuilder::predictor_of(const ArmInfo& arm) {
  const auto [found, is_new] = predictors_.try_emplace(arm.id);
  if (is_new && why_not_predicted(sources_, arm).empty()) {
    auto predictor = std::make_unique<Predictor>(sources_, arm);
    if (predictor->not_cut().empty()) found->second = std::move(predictor);
  }
  return found->second.get();
}

std::optional<Estimate> LengthBuilder::measured(const ArmInfo& arm, const Keep& keep) const {
  const ArmInfo* reference = sources_.run.reference(arm);
  if (reference == nullptr) return std::nullopt;
  const Pairing pairs = pair_with_reference(cells_.at(arm.id), cells_.at(reference->id), keep);
  std::vector<int64_t> prompts;
  for (const auto& [id, pair] : pairs.prompts) prompts.push_back(id);
  if (prompts.empty()) return std::nullopt;
  return speedup_sum(values_of(pairs.prompts), designs_.of(prompts, arm.batch));
}

LengthsAt LengthBuilder::lengths_at(const Drafter& drafter, const Predictor& predictor,
                                    const Keep& keep) const {
  LengthsAt at;
  for (const int k : lengths_up_to(predictor.depth())) {
    const Draft draft{.name = fmt::format("k={}", k), .length = k, .tree = {}};
    if (!predictor.why_not(draft).empty()) continue;
    const Prediction p = predictor.predict(draft, 1, keep);
    if (!p.speedup) continue;
    at.prompts = p.n_prompts;
    at.predicted.push_back(
        {.k = k, .tau = p.tau ? std::optional(p.tau->value) : std::nullopt, .speedup = *p.speedup});
  }
  for (const ArmInfo* arm : drafter) {
    const int k = chain_length(*arm);
    if (k == 0) continue;
    if (const std::optional<Estimate> speedup = measured(*arm, keep))
      at.measured.push_back({.k = k, .tau = {}, .speedup = *speedup});
  }
  std::reverse(at.measured.begin(), at.measured.end());  // drafters have the longest first
  return at;
}

std::map<ContextRange, std::set<int64_t>> LengthBuilder::ranges(
    const std::set<int64_t>& prompts) const {
  std::map<ContextRange, std::set<int64_t>> by_range;
  for (const int64_t prompt : prompts) {
    const auto context = contexts_.find(prompt);
    if (context == contexts_.end()) continue;
    ContextRange range{.above = 0, .up_to = kShortestRange};
    while (context->second > static_cast<double>(range.up_to))
      range = {.above = range.up_to, .up_to = 2 * range.up_to};
    by_range[range].insert(prompt);
  }
  std::erase_if(by_range, [](const auto& of) { return of.second.size() < kLeastOfRange; });
  if (by_range.size() < 2) by_range.clear();
  return by_range;
}

}  // namespace evalrun::reports
