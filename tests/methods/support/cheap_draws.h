// A session that says of itself what a GPU's says: that draws are cheap. Methods then keep the
// distributions of their drafts and have them tried in the target's forward, as there; here by the
// definitions (engine/rejection.h).
#pragma once
#include <memory>
#include <utility>

#include "engine/wrapped_session.h"

namespace evalrun::tests {

class CheapDraws final : public engine::WrappedSession {
 public:
  using WrappedSession::WrappedSession;
  bool draws_cheaply() const override { return true; }
  int64_t rejection_tests = 0;  // asked for so far

  engine::ForwardResult forward(const engine::ForwardRequest& request) override {
    rejection_tests += static_cast<int64_t>(request.rejection_tests.size());
    return WrappedSession::forward(request);
  }
};

}  // namespace evalrun::tests
