#include "reports/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "reports/data/parameters.h"

namespace evalrun::reports {

using results::StepRecord;

namespace {

// Parameters whose drafts depend on what became of the ones before them.
bool follows_itself(const ArmInfo& arm) {
  const Parameters parameters = parse_parameters(arm.params);
  const auto is = [&](const char* name, const char* value) {
    const auto found = parameters.find(name);
    return found != parameters.end() && found->second == value;
  };
  return is("adaptive", "true") || (parameters.contains("schedule") && !is("schedule", "constant"));
}

}  // namespace

std::string why_not_one_machine(const RunInfo& run) {
  if (!run.several_machines()) return "";
  return fmt::format(
      "run {} was measured by {} machines, whose steps have no common T(n): predict from the "
      "file of one of them, as it was before the merge",
      run.id, run.machines.size());
}

std::string why_not_predicted(const PredictSources& sources, const ArmInfo& arm) {
  if (const std::string why = why_not_one_machine(sources.run.run); !why.empty()) return why;
  if (!arm.drafts()) return fmt::format("{} drafts nothing", arm.label);
  const ArmInfo* reference = sources.run.reference(arm);
  if (reference == nullptr)
    return fmt::format("run {} has no plain decoding to compare with", sources.run.run.id);
  std::set<std::pair<int64_t, int>> plain;
  for (const SampleRow& s : sources.run.samples)
    if (s.arm_id == reference->id) plain.insert({s.prompt_id, s.sample});
  for (const SampleRow& s : sources.run.samples)
    if (s.arm_id == arm.id && s.steps > 0 && plain.contains({s.prompt_id, s.sample})) return "";
  return fmt::format("{}: no prompt is finished that {} finished, too", arm.label,
                     reference->label);
}

// Sums over one answer.
struct Predictor::Totals {
  double tokens = 0, steps = 0, rows = 0, verify_ns = 0, draft_ns = 0, overhead_ns = 0;
  double ns() const { return verify_ns + draft_ns + overhead_ns; }
  void add(const Totals& t, double weight) {
    tokens += weight * t.tokens, steps += weight * t.steps, rows += weight * t.rows;
    verify_ns += weight * t.verify_ns, draft_ns += weight * t.draft_ns;
    overhead_ns += weight * t.overhead_ns;
  }
};

Predictor::Predictor(const PredictSources& sources, const ArmInfo& arm)
    : arm_(arm),
      designs_(sources.run.prompts, Scope::kSameKind),
      tables_(sources.tables),
      other_(sources.other) {
  if (const std::string why = why_not_predicted(sources, arm); !why.empty())
    throw base::usage_error(why, "evalrun report shows what a run holds; evalrun run finishes it");
  load_base(sources, *sources.run.reference(arm));
  answers_ = load_traces(sources.store, sources.run.run.id, arm.id);
  std::erase_if(answers_, [&](const TracedAnswer& a) {
    return !base_.contains({a.prompt_id, a.sample}) ||
           std::all_of(a.turns.begin(), a.turns.end(),
                       [](const TracedTurn& t) { return t.steps.empty(); });
  });
  if (answers_.empty())
    throw base::usage_error(fmt::format("{}: no steps are stored", arm.label),
                            "measure it again: evalrun run stores the steps of every answer");
  look_at_steps();
  // In a batch a step of n rows is the answer's part of a forward of n rows for each of them.
  verify_.emplace(sources.verify_times->of(arm.model_hash, arm.batch, sources.left_out_arm),
                  tables_.of(static_cast<int>(arm.batch)));
  if (!tables_ && !other_)
    notes_.push_back("the run has no T(n) table: between measured row counts T(n) is a line");
  if (draft_->assumed())
    notes_.push_back(fmt::format(
        "{}: all drafts had one depth; drafting is taken to cost the same per level", arm.label));
}

void Predictor::load_base(const PredictSources& sources, const ArmInfo& reference) {
  std::set<int64_t> prompts;
  for (const PromptInfo& p : sources.run.prompts)
    if (!sources.prompts || sources.prompts(p.key)) prompts.insert(p.id);
  for (const SampleRow& s : sources.run.samples)
    if (s.arm_id == reference.id && s.fault.empty() && prompts.contains(s.prompt_id))
      base_[{s.prompt_id, s.sample}] = {s.n_decode, s.decode_ns, s.steps, s.verify_ns};
}

void Predictor::look_at_steps() {
  bool beside = false;
  for (const TracedAnswer& answer : answers_)
    for (const TracedTurn& turn : answer.turns)
      for (const StepRecord& s : turn.steps) {
        chain_ = chain_ && s.drafted == s.drafted_depth;
        beside = beside || s.rows != 1 + s.drafted;
      }
  cut_.emplace(answers_, static_cast<int>(arm_.max_new));
  draft_.emplace(answers_);
  places_ = count_places(answers_);
  if (follows_itself(arm_))
    not_cut_ = "the length of a draft follows what became of those before it";
  else if (beside)
    not_cut_ = "its steps compute rows beside the draft";
  else if (!chain_ && !parse_parameters(arm_.params).contains("tree"))
    not_cut_ = "the shape of its trees follows the text";
  else if (depth() == 0)
    not_cut_ = "nothing was ever drafted";
}

int Predictor::prompts() const {
  std::set<int64_t> ids;
  for (const TracedAnswer& a : answers_) ids.insert(a.prompt_id);
  return static_cast<int>(ids.size());
}

std::string Predictor::why_not(const Draft& draft) const {
  if (draft.as_measured()) return "";
  const auto because = [&](const std::string& why) {
    return fmt::format("{}: no prediction for {}: {}", arm_.label, draft.name, why);
  };
  if (!not_cut_.empty()) return because(not_cut_);
  // A drafter that stops by itself may never have used all it was allowed.
  int longest = depth();
  const Parameters parameters = parse_parameters(arm_.params);
  if (const auto k = parameters.find("k"); chain_ && k != parameters.end())
    longest = std::max(longest, static_cast<int>(number_of(k->second).value_or(0)));
  if (draft.length > longest)
    return because(fmt::format("its drafts were at most {} tokens deep", longest));
  const std::vector<TreePath> paths = paths_of(draft);
  if (!paths.empty() && places_.count.empty()) return because("no draft nodes are stored");
  for (const TreePath& path : paths)
    if (static_cast<int>(path.size()) > depth() || !places_.chance(path))
      return because(fmt::format("no draft was tested at {}", fmt::join(path, ".")));
  return "";
}

std::vector<TreePath> Predictor::paths_of(const Draft& draft) const {
  std::vector<TreePath> paths = draft.tree;
  if (chain_ && paths.empty()) return paths;
  for (int n = 1; n <= draft.length; ++n) paths.emplace_back(static_cast<size_t>(n), 0);
  return paths;
}

DraftShape Predictor::shape_of(const Draft& draft) const {
  const std::vector<TreePath> paths = paths_of(draft);
  return paths.empty() ? chain_shape(std::min(draft.length, depth()))
                       : tree_shape(paths, places_, cut_->counts());
}

RowTime Predictor::verify_time(int batch) const {
  const RowTime alone = [this](int rows) { return verify_->ns(rows); };
  if (!other_ && batch == 1) return alone;
  const int sequences = batch * static_cast<int>(arm_.batch);
  // Without a table of so many, what steps of n B rows took says most: they were measured.
  const RowTime time = other_                                ? other_.of(sequences)
                       : tables_.batches.contains(sequences) ? tables_.of(sequences)
                                                             : RowTimes{.one = alone}.of(batch);
  // In the time of a plain step here.
  return [time, scale = verify_->ns(1) / time(1)](int rows) { return scale * time(rows); };
}

Predictor::Totals Predictor::add_up(const TracedAnswer& answer,
                                    const std::optional<DraftShape>& shape,
                                    const RowTime& verify_ns) const {
  // What the measured steps cost, and what the fits say they should have: answers differ, for one
  // by the length of their prompts, and a prediction keeps that.
  Totals measured, fitted, result;
  for (const TracedTurn& turn : answer.turns)
    for (const StepRecord& s : turn.steps) {
      measured.steps += 1;
      measured.verify_ns += static_cast<double>(s.verify_ns);
      measured.draft_ns += static_cast<double>(s.draft_ns);
      fitted.verify_ns += verify_->ns(s.rows);
      fitted.draft_ns += draft_->ns(s.drafted_depth);
    }
  for (const TracedTurn& turn : answer.turns) {
    measured.overhead_ns += static_cast<double>(turn.decode_ns);
    const auto step = [&](double share, int rows, int depth) {
      result.steps += share;
      result.rows += share * rows;
      result.verify_ns += share * verify_ns(rows);
      result.draft_ns += share * draft_->ns(depth);
    };
    for (const StepRecord& s : turn.steps) {
      result.tokens += s.emitted;
      if (!shape) step(1, s.rows, s.drafted_depth);
    }
    if (shape) cut_->replay(turn, *shape, step);
  }
  measured.overhead_ns -= measured.verify_ns + measured.draft_ns;
  result.verify_ns *= measured.verify_ns / fitted.verify_ns;
  if (fitted.draft_ns > 0) result.draft_ns *= measured.draft_ns / fitted.draft_ns;
  if (measured.steps > 0) result.overhead_ns = measured.overhead_ns * result.steps / measured.steps;
  return result;
}

Prediction Predictor::predict(const Draft& draft, int batch,
                              const std::function<bool(int64_t prompt_id)>& keep) const {
  EVALRUN_CHECK(batch == 1 || (batch > 1 && arm_.batch == 1), "batch {} of an arm of batch {}",
                batch, arm_.batch);
  if (const std::string why = why_not(draft); !why.empty())
    throw base::usage_error(
        why, "drafts are cut from longer or larger ones: measure one that holds this one");
  std::optional<DraftShape> shape;
  if (!draft.as_measured()) shape = shape_of(draft);
  const RowTime verify_ns = verify_time(batch);
  struct Prompt {
    Totals totals;
    Base base;
  };
  std::map<int64_t, Prompt> prompts;
  Totals all;
  Base base;
  for (const TracedAnswer& answer : answers_) {
    if (keep && !keep(answer.prompt_id)) continue;
    const Totals totals = add_up(answer, shape, verify_ns);
    const Base& plain = base_.at({answer.prompt_id, answer.sample});
    Prompt& prompt = prompts[answer.prompt_id];
    prompt.totals.add(totals, answer.weight);
    all.add(totals, answer.weight);
    for (Base* sum : {&prompt.base, &base}) {
      sum->tokens += answer.weight * plain.tokens, sum->ns += answer.weight * plain.ns;
      sum->steps += answer.weight * plain.steps;
      sum->verify_ns += answer.weight * plain.verify_ns;
    }
  }
  std::vector<PromptPair> pairs;
  std::vector<RatioTerm> steps;
  std::vector<int64_t> ids;
  for (const auto& [id, p] : prompts) {
    ids.push_back(id);
    pairs.push_back({p.base.tokens, p.base.ns, p.totals.tokens, p.totals.ns()});
    steps.push_back({p.totals.tokens, p.totals.steps});
  }
  Prediction result{.arm = arm_.label,
                    .draft = draft.name,
                    .batch = batch * static_cast<int>(arm_.batch),
                    .n_prompts = static_cast<int>(prompts.size()),
                    .tau = {},
                    .speedup = {}};
  if (prompts.empty()) return result;
  result.tau = ratio_of_sums(steps, designs_.of(ids, arm_.batch));
  result.speedup = speedup_sum(pairs, designs_.of(ids, arm_.batch));
  result.rows = all.rows / all.steps;
  if (base.steps > 0 && base.verify_ns > 0 && base.ns > 0) {
    const double plain_step = base.ns / base.steps;
    result.t_ratio = all.verify_ns / all.steps / (base.verify_ns / base.steps);
    result.draft_share = all.draft_ns / all.steps / plain_step;
    result.overhead = all.overhead_ns / all.steps / plain_step;
  }
  return result;
}

}  // namespace evalrun::reports
