// How many prompts a run decodes at once: the fields `batch`, `batch_mode` and `wave` of a suite.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json_fields.h"
#include "methods/decode_batch.h"

namespace evalrun::runners {

inline constexpr int kLargestBatch = 64;

const char* to_string(methods::BatchMode mode);  // "static", "continuous"
methods::BatchMode parse_batch_mode(std::string_view text,
                                    const std::string& where);  // usage_error

// Every method is measured at every size.
struct Batches {
  std::vector<int> sizes = {1};                           // ascending once they are checked
  methods::BatchMode mode = methods::BatchMode::kStatic;  // of sizes above 1
  // Successive prompts of one data set that all arms decode in turn (runners/plan/waves.h); 0 = the
  // largest size, four times that of continuous batches, 1 where no size is above 1.
  int wave = 0;

  int largest() const;
  int wave_size() const;                       // what `wave` stands for
  bool one() const { return largest() == 1; }  // every prompt is decoded alone
  bool operator==(const Batches&) const = default;
};

// The fields of a suite; those that are missing keep what `batches` has. `file` is its name in
// messages. Throws usage_error.
void read_batches(base::ObjectReader& reader, const std::string& file, Batches& batches);
// Sorts the sizes. Throws usage_error for sizes out of 1 to kLargestBatch, none at all or one
// twice, and for a wave that is not a multiple of every size; `where` starts the messages.
void check_batches(Batches& batches, const std::string& where);
// Adds the fields that say something: sizes and mode where a size is above 1, a wave that was
// given. So suites without batches keep their keys.
void add_batches(const Batches& batches, nlohmann::json& suite);

// What the label of an arm has of its batch: ", batch 8", ", batch 8 continuous", "" for 1.
std::string batch_label(int batch, methods::BatchMode mode);
// "batches of 1, 2 and 8 (continuous), waves of 32 prompts"
std::string describe_batches(const Batches& batches);

}  // namespace evalrun::runners
