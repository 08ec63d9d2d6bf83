// Up to which batch a method pays: where its speedup, measured at some batch sizes, crosses 1 from
// above (docs/measurement.md, "Batches in reports").
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/data/design.h"
#include "reports/data/estimators.h"

namespace evalrun::reports {

// A batch size on a measured curve, or that it lies beyond one of its ends.
struct CurvePlace {
  enum class Where { kBelow, kInside, kAbove } where = Where::kInside;
  double batch = 0;          // beyond an end: the size measured there
  std::string text() const;  // "5.7", "below 1", "above 32"
};

// An arm at one batch size beside plain decoding at that size: a pair per prompt.
struct SpeedupAtBatch {
  int64_t batch = 1;
  std::vector<PromptPair> pairs;
};

struct Crossover {
  CurvePlace at;
  // The first place, from the left, where the curve is not shown to be above 1 (any more, where it
  // begins below), and the first where it is shown to be below. Absent for fewer than two units.
  std::optional<CurvePlace> lo, hi;
  int crossings = 0;         // of the measured curve with 1, in either direction
  double n_eff = 0;          // the least of the stretches (Estimate)
  std::string text() const;  // "5.7 [3.1, above 32]"
};

// The largest batch with a speedup above 1, ratio of sums: between two measured sizes the logs of
// the speedups lie on a line over ln batch. Where it crosses 1 more than once, the first crossing
// from above. Its interval inverts the test of "the speedup is 1 at this size" (Fieller 1954): a
// place's log has Student's t with the jackknife's standard error over units that both measured
// sizes have in common, so that what prompts do to both alike is in it. Each end misses with half
// of 1 - confidence.
// `curve`: sizes ascending, pairs of `prompts` in their order. nullopt for fewer than two sizes,
// and where one has no speedup.
std::optional<Crossover> crossover(std::span<const SpeedupAtBatch> curve,
                                   std::span<const int64_t> prompts, const PromptDesigns& designs,
                                   double confidence = 0.95);

}  // namespace evalrun::reports
