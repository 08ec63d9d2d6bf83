// The machines that measured a run, each of its prompts on one of them, and one clock for their
// times (docs/measurement.md, "Several machines").
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::reports {

struct MachineInfo {
  int64_t id = 0;  // row of the store; 0 = generations without one, beside others that have one
  std::string name = {}, key = {};           // names are unique within the run
  std::map<std::string, std::string> facts;  // "cpu", "gpu", "row_cost", ...
  // What times of this machine are multiplied by (clock_scales()).
  double time_scale = 1;
  // "AMD EPYC 9R14": its GPU, or else its processor; "" where it is not stored.
  std::string hardware() const;
};

// What plain decoding did on a machine.
struct PlainTotals {
  double tokens = 0, ns = 0;
};

// A factor for the times of each machine. Times multiplied by it are those of a clock on which
// plain decoding takes the same time per token on every machine, and in all as long as before.
// Ratios within a machine stay, and a slow machine weighs as much as a fast one. 1 for machines
// where nothing was decoded.
std::vector<double> clock_scales(std::span<const PlainTotals> machines);

// Who measured each prompt, learnt row by row. Prompts are numbered from 0, machines are rows of
// the store; 0 = of none. A prompt is of the machine that measured its plain decoding: what another
// one measured, as after a merge of files that have parts of it both, has nothing to be compared
// with.
class MeasuredBy {
 public:
  explicit MeasuredBy(size_t prompts) : machine_(prompts, kNotMeasured), by_plain_(prompts) {}

  // A generation of the prompt. `plain`: of plain decoding.
  void add(size_t prompt, int64_t machine, bool plain) {
    int64_t& of = machine_[prompt];
    mixed_ = mixed_ || (of != machine && of != kNotMeasured);
    if (of == kNotMeasured || (plain && !by_plain_[prompt])) of = machine;
    if (plain) by_plain_[prompt] = true;
  }

  int64_t of(size_t prompt) const { return machine_[prompt]; }
  bool mixed() const { return mixed_; }  // a prompt has generations of two machines
  // Ascending and each once, 0 last. One alone, and 0 beside it: the generations of before machines
  // were stored are that one's.
  std::vector<int64_t> machines() const;

 private:
  static constexpr int64_t kNotMeasured = -1;
  std::vector<int64_t> machine_;  // by prompt
  std::vector<bool> by_plain_;
  bool mixed_ = false;
};

// The machines of these rows, in their order. Names that several have get a number: "node (2)".
std::vector<MachineInfo> machines_named(const results::ResultStore& store, int64_t run_id,
                                        std::span<const int64_t> rows);

// "2 x AMD EPYC 9R14, Intel Xeon 8488C": in the order of first appearance. "" where none is known.
std::string hardware_text(std::span<const MachineInfo> machines);

}  // namespace evalrun::reports
