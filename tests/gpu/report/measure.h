// What is measured of one shape, as JSON: the report's tables are printed from it (markdown.h).
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/gpu/report/shapes.h"
#include "tests/gpu/report/timing.h"

namespace evalrun::engine::gpu_report {

using Json = nlohmann::ordered_json;

struct Workload {
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64};
  int context = 512, long_context = 8192, prefill = 2048;
  int repeats = 30, profiled_steps = 10;
  std::vector<int> profiled_rows = {16, 64};  // beside one
  int bit_rows = 64;                          // trees of 1 to this many rows are compared
  double warm_s = 0.5;  // before the first step is timed: an idle device has low clocks
  double busy_ms = 20;  // more than a step takes the host to queue, kernel by kernel
};
Workload workload(bool tiny);

// The time of this part is spent: what is left is not measured.
struct OutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};
class Deadline {
 public:
  explicit Deadline(double seconds);
  double elapsed() const;
  void check() const;  // throws OutOfTime

 private:
  double start_, seconds_;
};

// Each adds what it measured to `result` at once, so that what was measured before an error stays.
// Steps as graphs: wall and device times per number of rows, at a long context, prefill; plain
// decoding with its commits.
void measure_steps(const std::shared_ptr<const Model>& model, const Workload& w,
                   const Copies& copies, const Deadline& deadline, Json& result);
// Steps kernel by kernel, of one row and of many: times by kernel, attention at the long context.
void profile_steps(const std::shared_ptr<const Model>& model, const Workload& w,
                   const Copies& copies, const Deadline& deadline, Json& result);
// What a profiler is to see: one step of some numbers of rows, kernel by kernel.
void step_once(const std::shared_ptr<const Model>& model, const Workload& w);
// Rows of trees against the same rows decoded one by one.
void compare_bits(const std::shared_ptr<const Model>& model, const Workload& w,
                  const Deadline& deadline, Json& result);

}  // namespace evalrun::engine::gpu_report
