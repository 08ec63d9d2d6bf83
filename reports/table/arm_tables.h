// Tables with a row per arm: memory (weights, what a method keeps beside them, keys and values),
// use of the GPU, energy.
#pragma once
#include <string>
#include <vector>

#include "reports/document/document.h"
#include "reports/figures/report.h"

namespace evalrun::reports {

// Arms in their order, once each, plain decoding first; the A/A arm is left out.
std::vector<const ArmInfo*> arms_of(const Report& report);

// Columns: method, weights, extra parameters (adapter, draft model, datastore), KV, peak memory.
Table memory_table(const Report& report);

// A row per arm over all data sets, as memory_table(); no rows for a run on the CPU.
Table gpu_table(const Report& report);
// The same; no rows where no energy was read.
Table energy_table(const Report& report);

}  // namespace evalrun::reports
