#include "methods/model_draft/foreign_context.h"

#include <algorithm>

namespace evalrun::methods {

void ForeignContext::start(engine::Session& session, int sequence, std::span<const int32_t> text) {
  session_ = &session;
  sequence_ = sequence;
  text_.start();
  held_.clear();
  const std::span<const int32_t> tokens = text_.follow(text);
  if (tokens.empty() || static_cast<int>(tokens.size()) > session.free_tokens(sequence)) return;
  session.prefill(tokens, sequence);
  computed(tokens);
}

std::span<const int32_t> ForeignContext::follow(std::span<const int32_t> text) {
  const std::span<const int32_t> tokens = text_.follow(text);
  if (tokens.empty() || !text_.whole()) return {};
  last_ = static_cast<int>(tokens.size()) - 1;
  const auto differ = std::mismatch(held_.begin(), held_.end(), tokens.begin(), tokens.end()).first;
  const size_t kept = std::min(static_cast<size_t>(differ - held_.begin()), tokens.size() - 1);
  session_->rewind(static_cast<int>(kept), sequence_);
  held_.resize(kept);
  const std::span<const int32_t> fresh = tokens.subspan(kept);
  if (static_cast<int>(fresh.size()) > session_->free_tokens(sequence_)) return {};
  return fresh;
}

}  // namespace evalrun::methods
