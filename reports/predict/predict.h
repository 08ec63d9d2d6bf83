// What-if from stored steps (docs/predict.md): the speedup of an arm with shorter or smaller
// drafts, on a machine with another T(n), or for several answers decoded together. Nothing is run.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/data/estimators.h"
#include "reports/data/run_data.h"
#include "reports/predict/step_costs.h"
#include "reports/predict/tree_places.h"

namespace evalrun::reports {

struct Draft {
  std::string name = "as measured";
  int length = 0;              // of a chain
  std::vector<TreePath> tree;  // otherwise; both empty = as measured
  bool as_measured() const { return length == 0 && tree.empty(); }
};

struct Prediction {
  std::string arm, draft;
  int batch = 1, n_prompts = 0;
  double rows = 0;                                    // mean of a step
  double t_ratio = 0, draft_share = 0, overhead = 0;  // as in the why table
  std::optional<Estimate> tau, speedup;               // ratio of sums, intervals for new prompts
};

struct PredictSources {
  const results::ResultStore& store;
  const RunData& run;
  RowTimes tables = {};  // T(n) as the run measured it
  RowTimes other = {};   // another device's T(n), to predict for that one; empty = this one
  // Which prompts count, by key; empty = all.
  std::function<bool(const std::string& key)> prompts = {};
  // Arm whose verify times must not be used: a prediction is compared with it.
  int64_t left_out_arm = 0;
  // Of the run; copies share what is read.
  std::shared_ptr<VerifyTimes> verify_times = std::make_shared<VerifyTimes>(store, run.run.id);
};

// Why nothing can be predicted from a run: several machines measured it. "" = something can.
std::string why_not_one_machine(const RunInfo& run);
// Why nothing can be predicted from this arm: that, or it drafts nothing, or shares no finished
// prompt with its plain decoding. "" = something can.
std::string why_not_predicted(const PredictSources& sources, const ArmInfo& arm);

// One arm, read once, predicted many times.
class Predictor {
 public:
  // Throws usage_error where why_not_predicted() says why, or no steps are stored.
  Predictor(const PredictSources& sources, const ArmInfo& arm);
  // Throws usage_error where why_not() says why. `batch`: answers decoded together; an arm that was
  // measured in batches has its own alone. `keep`: which prompts count, by id; empty = all. Of none
  // there are no estimates.
  Prediction predict(const Draft& draft, int batch = 1,
                     const std::function<bool(int64_t prompt_id)>& keep = {}) const;
  // Why drafts other than the measured ones cannot be predicted, and why this one cannot; "" = they
  // can.
  const std::string& not_cut() const { return not_cut_; }
  std::string why_not(const Draft& draft) const;
  bool chain() const { return chain_; }  // no step drafted two tokens for one place
  int depth() const { return cut_->depth(); }
  int prompts() const;
  const TreePlaces& places() const { return places_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Base {  // plain decoding of the same prompt and sample
    double tokens = 0, ns = 0, steps = 0, verify_ns = 0;
  };
  using Cell = std::pair<int64_t, int>;  // prompt, sample
  struct Totals;
  void load_base(const PredictSources& sources, const ArmInfo& reference);
  void look_at_steps();
  // The paths of a draft; none where it is a chain cut from chains.
  std::vector<TreePath> paths_of(const Draft& draft) const;
  DraftShape shape_of(const Draft& draft) const;
  // Verify time of a step by its rows, in nanoseconds, `batch` steps together, before the answer's
  // scale.
  RowTime verify_time(int batch) const;
  Totals add_up(const TracedAnswer& answer, const std::optional<DraftShape>& shape,
                const RowTime& verify_ns) const;

  ArmInfo arm_;
  PromptDesigns designs_;
  std::vector<TracedAnswer> answers_;
  std::map<Cell, Base> base_;
  std::optional<DraftCut> cut_;
  std::optional<VerifyCost> verify_;
  std::optional<DraftCost> draft_;
  RowTimes tables_, other_;
  TreePlaces places_;
  bool chain_ = true;
  std::string not_cut_;
  std::vector<std::string> notes_;
};

}  // namespace evalrun::reports
