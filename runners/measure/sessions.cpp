#include "runners/measure/sessions.h"

namespace evalrun::runners {

engine::Session& ModelSessions::of(const std::shared_ptr<const engine::Model>& model) {
  std::unique_ptr<engine::Session>& session = sessions_[model];
  if (session == nullptr) session = engine::Session::create(model, options_);
  return *session;
}

}  // namespace evalrun::runners
