// Drafts end before a stop token. The target supplies that token as the bonus of the same step, so
// drafting it would cost a row and save none.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

namespace evalrun::methods {

inline bool is_stop(std::span<const int32_t> stop_ids, int32_t token) {
  return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
}

// The front part of `draft` without a stop token and of at most `max_depth` tokens.
inline std::span<const int32_t> usable_draft(std::span<const int32_t> draft, int max_depth,
                                             std::span<const int32_t> stop_ids) {
  const size_t most = std::min(draft.size(), static_cast<size_t>(std::max(max_depth, 0)));
  size_t n = 0;
  while (n < most && !is_stop(stop_ids, draft[n])) ++n;
  return draft.first(n);
}

}  // namespace evalrun::methods
