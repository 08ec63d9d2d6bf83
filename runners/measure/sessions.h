// The sessions that decode the models of a plan.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "engine/session.h"

namespace evalrun::runners {

// The session that decodes a model of the plan's arms (PlannedArm::model); it must outlive the run.
using SessionOf =
    std::function<engine::Session&(const std::shared_ptr<const engine::Model>& model)>;

// One session per model, made when it is first asked for. Options as of planned_session().
class ModelSessions {
 public:
  explicit ModelSessions(engine::SessionOptions options) : options_(std::move(options)) {}
  engine::Session& of(const std::shared_ptr<const engine::Model>& model);

 private:
  engine::SessionOptions options_;
  std::map<std::shared_ptr<const engine::Model>, std::unique_ptr<engine::Session>> sessions_;
};

}  // namespace evalrun::runners
