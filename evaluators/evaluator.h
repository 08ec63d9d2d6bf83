// Judges over finished generations: pure functions of prompt and text.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/base/registry.h"
#include "results/records.h"

namespace evalrun::evaluators {

struct EvaluatorInfo {
  std::string name;     // "gsm8k_flexible"
  std::string version;  // convention, e.g. "lm-eval-3"
  std::string summary;
  std::string unit;  // "accuracy"
  bool higher_is_better = true;
  // Says how alike two texts are, so that another answer can stand in for the reference.
  bool similarity = false;
  // Runs programs or asks a server: scored after the timed generations, not between them.
  bool deferred = false;
  // False: says what an answer is like, and applies to every data set.
  bool needs_reference = true;
  // The run's models score it, after the timed generations: `evalrun run` alone (by_model.h).
  bool by_model = false;

  std::string id() const { return name + "@" + version; }
};

// What scoring needs besides prompt and answer; the same for all answers of a run. The defaults are
// those of figures to publish.
struct ScoringContext {
  // For answers that are programs (docs/sandbox.md).
  bool allow_unsafe = false;  // run them unprotected where nothing better is possible
  double time_scale = 1;      // of all time limits, for slow machines
  // Where prepared toolchains and results of programs are kept; "" = $EVALRUN_HOME.
  std::string cache_folder;
  bool reuse_results = true;                   // of the same program under the same limits
  std::vector<std::string> read_only_folders;  // shown in the sandbox, e.g. a rustup folder
  bool fix_go_imports = false;  // import what only the test uses; officially that does not compile
};

struct EvaluatorEntry {
  EvaluatorInfo info;
  // texts: the model's answers, one per turn. Never throws for odd text: a status says what
  // happened. May be called from several threads at once. Empty where info.by_model.
  std::function<results::ScoreRecord(const datasets::Prompt&, const std::vector<std::string>& texts,
                                     const ScoringContext& context)>
      score = {};
  // Throws base::Error when this machine cannot score at all, before hours of generating. Empty =
  // always possible.
  std::function<void(const ScoringContext&)> prepare = {};
  // What of the context changes scores; kept in their facts as "options". Empty = nothing does.
  std::function<std::string(const ScoringContext&)> options = {};
};

// By id: "rougeL@pltrdy-1.0.1".
const base::Registry<EvaluatorEntry>& evaluator_registry();

// `text`: an id, or a name that only one convention has. Throws usage_error: unknown (with
// neighbours), or several conventions (all named).
const EvaluatorEntry& find_evaluator(const std::string& text);

}  // namespace evalrun::evaluators
