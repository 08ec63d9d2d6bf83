// Log-probabilities of tokens that a text has, by the target.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "engine/session.h"

namespace evalrun::runners {

struct TokenScore {
  int32_t token = -1;
  double log_prob = 0;                                // nats, at temperature 1, nothing cut
  bool greedy = false;                                // whether plain greedy decoding takes it
  std::vector<std::pair<int32_t, double>> best = {};  // the likeliest tokens, the best one first
};

// Of ids[first], ids[first + 1], ... with `n_best` best tokens each; 1 <= first <= ids.size(). The
// session is emptied first, and holds all of ids. `check` is called for every token and may throw.
std::vector<TokenScore> score_tokens(engine::Session& session, std::span<const int32_t> ids,
                                     size_t first, int n_best, const std::function<void()>& check);

}  // namespace evalrun::runners
