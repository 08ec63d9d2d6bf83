#include "runners/cli/measure/cost_models.h"

#include <algorithm>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/cache_memory.h"
#include "engine/cpu/caches.h"
#include "engine/devices.h"
#include "engine/model/assemble.h"
#include "engine/model/shape_model.h"

namespace evalrun::cli {
namespace {

using engine::SessionOptions;
using engine::Shape;
using engine::WeightFormat;

// Memory of a device in which a model may lie.
struct DeviceRoom {
  double bytes = 0;
  std::string text;  // "8.2 GB are free"
};

const engine::cuda::Device& gpu_named(const std::string& device) {
  return engine::find_gpu(device, engine::cuda::list_devices());
}

DeviceRoom room_on(const std::string& device) {
  if (!engine::is_gpu(device)) {
    const auto bytes = static_cast<double>(engine::available_memory_bytes());
    return {bytes, fmt::format("{} of memory are free", base::format_bytes(bytes))};
  }
  const engine::cuda::Device& gpu = gpu_named(device);
  const auto bytes = static_cast<double>(gpu.memory_bytes);
  return {bytes, fmt::format("{} has {}", gpu.name, base::format_bytes(bytes))};
}

std::string formats_that_fit(const Shape& shape, const SessionOptions& session, double room) {
  std::vector<std::string_view> names;
  for (const engine::WeightFormatSpec& spec : engine::rounded_formats())
    if (shape_needs(shape.config, spec.format, session) <= room) names.push_back(spec.name);
  return names.empty() ? fmt::format("{} fits in no format", shape.name)
                       : fmt::format("{} fits as {}", shape.name, fmt::join(names, ", "));
}

std::string shapes_that_fit(WeightFormat format, const SessionOptions& session, double room) {
  std::vector<std::string> names;
  for (const Shape& shape : engine::known_shapes())
    if (shape_needs(shape.config, format, session) <= room) names.push_back(shape.name);
  return names.empty()
             ? fmt::format("no built-in shape fits as {}", engine::name_of(format))
             : fmt::format("as {} fit {}", engine::name_of(format), fmt::join(names, ", "));
}

void check_fits(const Shape& shape, WeightFormat format, const SessionOptions& session,
                const DeviceRoom& room) {
  const double needed = shape_needs(shape.config, format, session);
  if (needed <= room.bytes) return;
  const auto weights = static_cast<double>(
      engine::weight_bytes(shape.config, format).with_layers(shape.config.n_layers));
  throw base::data_error(
      shape.config.name, "",
      fmt::format(
          "as {} a model of this shape needs {} ({} of weights, {} for keys and values of {}{} "
          "tokens), but {}: {} too few",
          engine::name_of(format), base::format_bytes(needed), base::format_bytes(weights),
          base::format_bytes(needed - weights),
          session.n_sequences == 1 ? "" : fmt::format("{} sequences of ", session.n_sequences),
          session.max_tokens, room.text, base::format_bytes(needed - room.bytes)),
      fmt::format("{}; {}", formats_that_fit(shape, session, room.bytes),
                  shapes_that_fit(format, session, room.bytes)));
}

}  // namespace

WeightFormat shape_format(const std::string& name) {
  const WeightFormat format = engine::weight_format_by_name(name);
  if (format == WeightFormat::kStored) {
    std::vector<std::string_view> others;
    for (const engine::WeightFormatSpec& spec : engine::rounded_formats())
      others.push_back(spec.name);
    throw base::usage_error(
        fmt::format("--dtype {}: a shape has no file whose tensors could be kept", name),
        fmt::format("choose one of {}, or measure the file itself with -m",
                    fmt::join(others, ", ")));
  }
  return format == WeightFormat::kAuto ? WeightFormat::kInt8 : format;
}

double shape_needs(const engine::ModelConfig& config, WeightFormat format, SessionOptions session) {
  // A GPU's caches are bytes or follow the weights; others are refused where a session is made.
  if (engine::is_gpu(session.device) && !engine::kv_in_bytes(session.kv_dtype))
    session.kv_dtype.clear();
  return static_cast<double>(engine::weight_bytes(config, format).with_layers(config.n_layers)) +
         engine::cache_bytes_for(config, engine::resolve_options(session, format));
}

int64_t device_cache_bytes(const std::string& device) {
  return engine::is_gpu(device) ? gpu_named(device).cache_bytes : engine::cpu::cache_bytes();
}

std::vector<CostModel> make_shape_models(const Shape& shape,
                                         const std::vector<WeightFormat>& formats,
                                         const SessionOptions& options) {
  const SessionOptions session = engine::resolve_engine(options);
  const engine::ModelConfig& c = shape.config;
  const DeviceRoom room = room_on(session.device), here = room_on("cpu");
  for (const WeightFormat format : formats) check_fits(shape, format, session, room);

  // What is made lies in this machine's memory, of all formats at once.
  const int64_t least = engine::cpu::kTimesTheCaches * device_cache_bytes(session.device);
  std::vector<CostModel> models;
  double held = 0;
  for (const WeightFormat format : formats) {
    models.push_back({nullptr, engine::distinct_layers(c, format, least)});
    held += static_cast<double>(
        engine::weight_bytes(c, format).with_layers(models.back().distinct_layers));
    if (!engine::is_gpu(session.device))
      held += engine::cache_bytes_for(c, engine::resolve_options(session, format));
  }
  if (held > here.bytes)
    throw base::data_error(c.name, "",
                           fmt::format("{} formats at once need {}, but {}", formats.size(),
                                       base::format_bytes(held), here.text),
                           "measure them one by one");
  for (size_t i = 0; i < formats.size(); ++i)
    models[i].model = engine::make_shape_model(c, {.format = formats[i],
                                                   .distinct_layers = models[i].distinct_layers,
                                                   .n_threads = engine::allowed_cores()});
  return models;
}

}  // namespace evalrun::cli
