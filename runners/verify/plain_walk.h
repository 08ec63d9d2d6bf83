// What the target says along an answer without any draft: audits hold decisions against it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/session.h"

namespace evalrun::runners {

// Plain decoding's logits along an answer, one row a forward, in a session of its own.
class PlainWalk {
 public:
  explicit PlainWalk(engine::Session& session) : session_(session) {}
  // As the decode loop prefills: the last token of the prompt by the decode path.
  void begin(std::span<const int32_t> prompt) {
    session_.reset();
    if (prompt.size() > 1) session_.prefill(prompt.first(prompt.size() - 1));
  }
  // After `token`, which is committed. Valid until the next call.
  std::span<const float> after(int32_t token) {
    engine::Row row;
    row.token = token;
    engine::ForwardRequest request;
    request.rows = {&row, 1};
    const engine::ForwardResult result = session_.forward(request);
    const std::span<const float> logits = result.logits_row(0);
    logits_.assign(logits.begin(), logits.end());
    const int root = 0;
    session_.commit({&root, 1});
    return logits_;
  }
  // Tokens that are committed, and back to as many.
  int length() const { return session_.length(); }
  void back_to(int length) { session_.rewind(length); }

 private:
  engine::Session& session_;
  std::vector<float> logits_;
};

}  // namespace evalrun::runners
