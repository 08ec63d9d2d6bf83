// Which draft length is best at a batch size and at a context: predicted from stored steps and the
// run's T(B n)/T(B) for every length up to the measured one, beside the lengths that were measured
// (docs/measurement.md, "Batches in reports").
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reports/data/estimators.h"
#include "reports/data/pairing.h"
#include "reports/predict/predict.h"

namespace evalrun::reports {

// A chain of k draft tokens at most, and its speedup over plain decoding of the same batch.
struct LengthSpeed {
  int k = 0;
  std::optional<double> tau = {};
  Estimate speedup = {};
};
// The one with the largest speedup; null for none.
const LengthSpeed* best_length(const std::vector<LengthSpeed>& lengths);

// Prompts by the mean context of their steps in plain decoding, in tokens: above `above`, and not
// above `up_to`.
struct ContextRange {
  int64_t above = 0, up_to = 0;
  std::string text() const;  // "129 to 256"
  auto operator<=>(const ContextRange&) const = default;
};

struct LengthsAt {
  std::optional<ContextRange> context = {};  // absent: all prompts
  int prompts = 0;
  std::vector<LengthSpeed> predicted = {};  // by k
  std::vector<LengthSpeed> measured = {};   // by k: arms that differ in it alone
};

// Of a drafter at one batch size.
struct DraftLengths {
  std::string drafter;    // its label without a length and a batch: "sps:draft=trained"
  std::string from;       // label of the arm whose steps it is predicted from
  int table_context = 0;  // RowTimes::context
  // All prompts first, then the ranges that hold two prompts or more, where there are several.
  std::vector<LengthsAt> at;
};

// The length of an arm's chains as its parameters say it; 0 where they do not.
int chain_length(const ArmInfo& arm);
// Of an arm's label, what is left without its length, tree and batch.
std::string drafter_name(const ArmInfo& arm);
// What is predicted of drafts of at most so many tokens: every length to 8, further ones thinner.
std::vector<int> lengths_up_to(int longest);

class LengthBuilder {
 public:
  // All must outlive the builder. `contexts`: of the run's prompts (RunBatchMeasures); `sources`
  // without a T(n) table: nothing is predicted.
  LengthBuilder(const PredictSources& sources, const PromptDesigns& designs,
                const std::map<int64_t, ArmCells>& cells,
                const std::map<int64_t, double>& contexts);

  // Of these prompts, by the id of the arm that is predicted from: of each lossless drafter at each
  // batch size the one with the longest chains. Left out are arms whose drafts cannot be cut
  // (Predictor::not_cut()).
  std::map<int64_t, DraftLengths> lengths(const std::set<int64_t>& prompts);

 private:
  // Arms of one batch that differ in the length of their drafts alone, the longest first.
  using Drafter = std::vector<const ArmInfo*>;
  using Keep = std::function<bool(int64_t prompt)>;

  std::vector<Drafter> drafters() const;
  const Predictor* predictor_of(const ArmInfo& arm);
  std::optional<Estimate> measured(const ArmInfo& arm, const Keep& keep) const;
  LengthsAt lengths_at(const Drafter& drafter, const Predictor& predictor, const Keep& keep) const;
  std::map<ContextRange, std::set<int64_t>> ranges(const std::set<int64_t>& prompts) const;

  const PredictSources& sources_;
  const PromptDesigns& designs_;
  const std::map<int64_t, ArmCells>& cells_;                  // by arm
  const std::map<int64_t, double>& contexts_;                 // by prompt
  std::map<int64_t, std::unique_ptr<Predictor>> predictors_;  // by arm; null: cannot be cut
};

}  // namespace evalrun::reports
