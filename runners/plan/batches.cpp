#include "runners/plan/batches.h"

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

using base::usage_error;
using methods::BatchMode;

constexpr int kLargestWave = 1 << 20;
// A continuous batch of a wave is full until the wave's last prompts are under way: the longer the
// wave, the smaller the part of it that is decoded beside fillers.
constexpr int kContinuousWave = 4;

int common_multiple(const std::vector<int>& sizes) {
  int64_t multiple = 1;
  for (const int size : sizes) {
    multiple = std::lcm(multiple, int64_t{size});
    if (multiple > kLargestWave) return 0;
  }
  return static_cast<int>(multiple);
}

void check_wave(const Batches& batches, const std::string& where) {
  if (batches.wave < 0 || batches.wave > kLargestWave)
    throw usage_error(
        fmt::format("{}: field 'wave' is {}, outside 0 to {}", where, batches.wave, kLargestWave));
  for (const int size : batches.sizes) {
    if (batches.wave_size() % size == 0) continue;
    const int multiple = common_multiple(batches.sizes);
    throw usage_error(
        fmt::format("{}: field 'wave': {} prompts are no whole number of batches of {}", where,
                    batches.wave_size(), size),
        multiple > 0 ? fmt::format("every size must divide it: --wave {} (suite: \"wave\": {})",
                                   multiple, multiple)
                     : "every size must divide it: take sizes such as --batch 1,2,4,8");
  }
}

}  // namespace

const char* to_string(BatchMode mode) {
  switch (mode) {
    case BatchMode::kStatic:
      return "static";
    case BatchMode::kContinuous:
      return "continuous";
  }
  return "";
}

BatchMode parse_batch_mode(std::string_view text, const std::string& where) {
  for (const BatchMode mode : {BatchMode::kStatic, BatchMode::kContinuous})
    if (text == to_string(mode)) return mode;
  throw usage_error(fmt::format("{}: unknown batch mode '{}'", where, text),
                    base::suggest(text, {"static", "continuous"}));
}

int Batches::largest() const { return *std::max_element(sizes.begin(), sizes.end()); }

int Batches::wave_size() const {
  if (wave > 0) return wave;
  if (one()) return 1;
  return mode == BatchMode::kContinuous ? kContinuousWave * largest() : largest();
}

void read_batches(base::ObjectReader& reader, const std::string& file, Batches& batches) {
  if (const nlohmann::json* list = reader.raw("batch"); list != nullptr) {
    const std::string wanted =
        fmt::format("must be a list of whole numbers from 1 to {}", kLargestBatch);
    if (!list->is_array()) reader.fail("batch", wanted);
    batches.sizes.clear();
    for (const nlohmann::json& item : *list) {
      const int64_t size = item.is_number_integer() ? item.get<int64_t>() : 0;
      if (size < 1 || size > kLargestBatch) reader.fail("batch", wanted);
      batches.sizes.push_back(static_cast<int>(size));
    }
    if (batches.sizes.empty()) reader.fail("batch", wanted);
  }
  if (reader.has("batch_mode"))
    batches.mode =
        parse_batch_mode(reader.required<std::string>("batch_mode"), file + ": field 'batch_mode'");
  batches.wave = reader.optional<int>("wave", batches.wave);
}

void check_batches(Batches& batches, const std::string& where) {
  std::vector<int>& sizes = batches.sizes;
  if (sizes.empty()) throw usage_error(fmt::format("{}: field 'batch' is empty", where));
  std::sort(sizes.begin(), sizes.end());
  for (const int size : sizes)
    if (size < 1 || size > kLargestBatch)
      throw usage_error(
          fmt::format("{}: field 'batch' has {}, outside 1 to {}", where, size, kLargestBatch));
  if (const auto twice = std::adjacent_find(sizes.begin(), sizes.end()); twice != sizes.end())
    throw usage_error(fmt::format("{}: field 'batch' lists {} twice", where, *twice),
                      "repeat measurements with --repeats; the A/A arm is --aa");
  if (batches.mode == BatchMode::kContinuous && batches.one())
    throw usage_error(
        fmt::format("{}: field 'batch_mode' is 'continuous', and no batch is above 1", where),
        "name sizes: --batch 1,4 (suite: \"batch\": [1, 4]), or leave the mode out");
  check_wave(batches, where);
}

void add_batches(const Batches& batches, nlohmann::json& suite) {
  if (!batches.one()) {
    suite["batch"] = batches.sizes;
    suite["batch_mode"] = to_string(batches.mode);
  }
  if (batches.wave > 0) suite["wave"] = batches.wave;
}

std::string batch_label(int batch, BatchMode mode) {
  if (batch == 1) return "";
  return fmt::format(", batch {}{}", batch, mode == BatchMode::kContinuous ? " continuous" : "");
}

std::string describe_batches(const Batches& batches) {
  const std::vector<int>& sizes = batches.sizes;
  std::string text = std::to_string(sizes.front());
  for (size_t i = 1; i < sizes.size(); ++i)
    text += fmt::format("{}{}", i + 1 < sizes.size() ? ", " : " and ", sizes[i]);
  return fmt::format("batches of {}{}, waves of {} prompt{}", text,
                     batches.one() ? "" : fmt::format(" ({})", to_string(batches.mode)),
                     batches.wave_size(), batches.wave_size() == 1 ? "" : "s");
}

}  // namespace evalrun::runners
