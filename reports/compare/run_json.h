// Which run a comparison or a verdict is about, as JSON.
#pragma once
#include "reports/data/run_data.h"
#include "reports/json_values.h"

namespace evalrun::reports {

inline Json run_json(const RunInfo& r) {
  return {{"run", r.id},
          {"label", r.label},
          {"suite", r.suite},
          {"commit", r.commit},
          {"started", r.started}};
}

}  // namespace evalrun::reports
