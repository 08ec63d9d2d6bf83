// A stored run seen by another axis than its data sets.
#pragma once
#include <memory>

#include "results/store.h"

namespace evalrun::results {

enum class Axis { kCategory, kLanguage };

// A store in memory with this one run, in which every data set is cut into its categories or
// languages ("mt_bench / writing"); prompts without one keep the data set's name. Every view, and
// so every report, then speaks of the parts. The run keeps its number.
std::unique_ptr<ResultStore> regrouped(const ResultStore& store, int64_t run_id, Axis axis);

}  // namespace evalrun::results
