#include "engine/model/format_copy.h"

#include <filesystem>
#include <mutex>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

std::shared_ptr<const Model> read_again(const Model& model, WeightFormat format, int n_threads) {
  std::error_code error;
  if (!std::filesystem::exists(model.path(), error)) return convert_model(model, format);
  std::shared_ptr<const Model> loaded = load_model(
      model.path(),
      {.format = format, .n_threads = n_threads, .need_tokenizer = false, .chat_template = {}});
  if (!model.hash().empty() && loaded->hash() != model.hash())
    throw base::data_error(model.path(), "", "is not the file any more that the target is from",
                           "leave the file alone while it is measured, and start again");
  return loaded;
}

}  // namespace

int weight_bits(WeightFormat format) {
  switch (spec_of(format).layers) {
    case WeightStorage::kF32:
      return 32;
    case WeightStorage::kBf16:
      return 16;
    case WeightStorage::kInt8Channel:
    case WeightStorage::kInt8Group:
      return 8;
    case WeightStorage::kQ4Group:
    case WeightStorage::kQ4Centred:
      return 4;
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      break;
  }
  EVALRUN_CHECK(false, "{} has no storage for values", name_of(format));
  return 0;
}

int weight_bits(const Model& model) {
  const bool by_file = model.format() == WeightFormat::kStored && model.stored_bits() > 0;
  return by_file ? model.stored_bits() : weight_bits(model.format());
}

std::shared_ptr<const Model> copy_in_format(const Model& model, WeightFormat format,
                                            int n_threads) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Model>& copy = model.copies()[format];
  if (copy != nullptr) return copy;
  ModelParts parts = read_again(model, format, n_threads)->parts();
  parts.config.name += fmt::format("[{}]", name_of(format));
  parts.tokenizer = model.parts().tokenizer;
  copy = Model::create(std::move(parts));
  return copy;
}

}  // namespace evalrun::engine
