// Bits of logits that a GPU is to give, predicted on the emulated device. The emulator's mma.sync
// computes what the published model of tensor cores says (tests/gpu/tensor_cores.h); everything
// else is float32 as in the source. So equal bits say at once that layouts, order of sums and
// arithmetic are on the GPU what the tests have seen.
//
// tests/gpu/predicted_bits.txt has a hash of each row's logits and the first of them, for random
// models whose weights are the same everywhere (engine/model/shape_model.h). It is compiled into
// gpu_report.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/embedded_file.h"
#include "engine/model/config.h"
#include "engine/model/weight_matrix.h"
#include "tests/gpu/tensor_cores.h"

namespace evalrun::engine::gpu_report {

using cuda::testing::TensorCores;

// The first nodes of the case's tree. `across`: products meet over several thread blocks, whatever
// the size of their matrices. Neither may change a row's bits, so one prediction serves all.
struct BitStep {
  int rows;
  bool across = false;
  std::string text() const;  // "17 rows, across thread blocks"
};
struct BitCase {
  std::string name;  // "qwen2 int8"
  ModelConfig config;
  WeightFormat format;
  int context;  // tokens before the step, prefilled without cuBLAS
  std::vector<BitStep> steps;
  int most_rows() const;
};
// Small models by family and format. `large`: and one layer of the shape of Llama-2-7B in bf16,
// int8 and q4.
std::vector<BitCase> bit_cases(bool large);

constexpr size_t kFirstLogits = 4;
struct RowBits {
  std::array<uint32_t, kFirstLogits> first;
  uint64_t hash;  // of all logits of the row
  bool operator==(const RowBits&) const = default;
};
struct ComputedCase {
  uint64_t inputs = 0;  // hash of the weights and of the table of angles
  std::vector<std::vector<RowBits>> steps;
};
// On the first CUDA device.
ComputedCase compute_bits(const BitCase& c);

struct PredictedCase {
  std::string name;
  uint64_t inputs = 0;
  std::map<TensorCores, std::vector<RowBits>> rows;
};
struct Predictions {
  std::string made_from;  // what computed them
  std::vector<PredictedCase> cases;
};
std::string print_predictions(const Predictions& predictions);
// Throws data_error with `file` and the line.
Predictions parse_predictions(std::string_view file, std::string_view text);
// Those that were compiled in.
std::span<const base::EmbeddedFile> embedded_predictions();

struct BitDifference {
  std::string step;
  int row = 0;
  int index = -1;  // of the logit; -1: none of the first, and the hashes of all are different
  uint64_t predicted = 0, found = 0;  // bits of that logit, or hashes
  std::string text() const;  // "step of 17 rows, row 3, logit 2: predicted 3f800000 (1), found ..."
};
struct CaseComparison {
  int compared = 0, equal = 0;  // rows
  std::string why_not;          // not empty: nothing could be compared
  std::optional<BitDifference> first;
};
CaseComparison compare_with_prediction(const BitCase& c, const ComputedCase& computed,
                                       const Predictions& predictions, TensorCores how);

std::string_view name_of(TensorCores how);  // "hopper"

}  // namespace evalrun::engine::gpu_report
