// Stored runs seen by other axes than their data sets.
#pragma once
#include <memory>
#include <vector>

#include "results/store.h"

namespace evalrun::results {

enum class Axis { kCategory, kLanguage };

// The same file once more, in which every data set is cut into its categories, languages or both
// ("mt_bench / writing", "samples / code / python"); prompts without one keep what comes before it.
// Every view, and so every report, then speaks of the parts. Nothing is copied: temporary views of
// this connection hide the table of prompts. The store must be a file.
std::unique_ptr<ResultStore> regrouped(const ResultStore& store, const std::vector<Axis>& axes);

}  // namespace evalrun::results
