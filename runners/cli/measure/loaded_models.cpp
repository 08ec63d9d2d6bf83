#include "runners/cli/measure/loaded_models.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace evalrun::cli {
namespace {

// Threads are among it: they decide which core first touches which part of the weights.
std::string loading_of(const ModelOptions& o, const std::string& path, const std::string& dtype) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", path, o.device.value_or(kDefaultDevice), dtype,
                     o.threads.value_or(0), o.chat_template.value_or(""));
}

}  // namespace

std::shared_ptr<const engine::Model> LoadedModels::target(const ModelOptions& options) {
  const std::string path = options.path();
  const std::string asked_for = loading_of(options, path, options.dtype.value_or(kDefaultDtype));
  if (target_.model != nullptr && target_.asked_for == asked_for) return target_.model;
  target_ = {};
  spdlog::debug("loading {}", path);
  target_ = {asked_for, options.load()};
  return target_.model;
}

std::shared_ptr<const engine::Model> LoadedModels::draft(const ModelOptions& options) {
  if (options.draft.empty()) return nullptr;
  const std::string asked_for = loading_of(
      options, options.draft, options.draft_dtype.value_or(options.dtype.value_or(kDefaultDtype)));
  if (draft_.model != nullptr && draft_.asked_for == asked_for) return draft_.model;
  draft_ = {};
  spdlog::debug("loading {}", options.draft);
  draft_ = {asked_for, options.load_draft()};
  return draft_.model;
}

}  // namespace evalrun::cli
