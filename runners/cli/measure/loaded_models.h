// Models of a command with several runs. Those that follow each other and ask for the same model in
// the same way share it, so that a sweep over lengths or temperatures reads its weights once.
#pragma once
#include <memory>
#include <string>

#include "runners/cli/cli.h"

namespace evalrun::cli {

// Holds the last target and the last draft model, and lets each go before another is loaded: there
// are never two copies of the weights. Whoever holds one longer must drop it first.
class LoadedModels {
 public:
  // As ModelOptions::load() and load_draft(), with their errors. The same object as before where
  // file, device, format, threads and chat template are named as before.
  std::shared_ptr<const engine::Model> target(const ModelOptions& options);
  std::shared_ptr<const engine::Model> draft(const ModelOptions& options);

 private:
  struct Loaded {
    std::string asked_for;  // all that loading depends on
    std::shared_ptr<const engine::Model> model;
  };
  Loaded target_, draft_;
};

}  // namespace evalrun::cli
