// Prediction and confirmation side by side: measured arms whose drafts are cut from those of a
// stored arm, each predicted from it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reports/predict/predict.h"

namespace evalrun::reports {

struct Confirmation {
  std::string arm;  // the measured one
  Prediction predicted, measured;
  int n_prompts = 0;  // the same in both
  double error() const { return predicted.speedup->value / measured.speedup->value - 1; }
};

struct Confirmations {
  std::vector<Confirmation> rows;
  std::vector<std::string> left_out;           // measured arms without a source, with the reason
  std::optional<double> median_error() const;  // of the absolute errors
};

// A draft tree as methods spell it ("0+00+1", chain:3, a published name) as paths; nullopt for one
// that no text fixes (auto).
using ReadTree = std::function<std::optional<std::vector<TreePath>>(const std::string& text)>;

// Over the prompts both arms finished. An arm is predicted from one of `source` that differs in the
// length or the tree of its drafts only; of several from the one with the deepest drafts. Throws
// usage_error when nothing can be confirmed.
Confirmations confirm(const PredictSources& source, const PredictSources& measured,
                      const ReadTree& read_tree);

}  // namespace evalrun::reports
