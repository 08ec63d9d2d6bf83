#include "reports/data/pair_columns.h"

#include <algorithm>

namespace evalrun::reports {

namespace {

// `use(cell, m, b)` for the cells of both, which are in the order of their cells; returns how many.
template <typename Use>
int64_t for_common_cells(const ArmCells& method, const ArmCells& base, const Use& use) {
  int64_t met = 0;
  auto b = base.begin();
  for (const auto& [cell, m] : method) {
    while (b != base.end() && b->first < cell) ++b;
    if (b == base.end()) break;
    if (b->first != cell) continue;
    ++met;
    use(cell, *m, *b->second);
  }
  return met;
}

PromptPair decode_of(const SampleRow& m, const SampleRow& b) {
  return {b.n_decode, b.decode_ns, m.n_decode, m.decode_ns, b.fastest_ns, m.fastest_ns};
}

PromptPair request_of(const SampleRow& m, const SampleRow& b) {
  return {b.n_tokens, b.request_ns(), m.n_tokens, m.request_ns()};
}

PromptPair first_token_of(const SampleRow& m, const SampleRow& b) {
  return {1, b.first_token_ns, 1, m.first_token_ns};
}

PromptPair published_of(const SampleRow& m, const SampleRow& b) {
  return {b.n_tokens - b.stop_tokens, b.request_ns(), m.n_tokens, m.request_ns()};
}

void add_to_last(std::vector<PromptPair>& sums, const PromptPair& p) {
  PromptPair& sum = sums.back();
  sum.base_tokens += p.base_tokens, sum.base_ns += p.base_ns;
  sum.tokens += p.tokens, sum.ns += p.ns;
  sum.base_fastest_ns += p.base_fastest_ns, sum.fastest_ns += p.fastest_ns;
}

}  // namespace

PairColumns pair_columns(const ArmCells& method, const ArmCells& base, Estimator estimator,
                         int64_t batch) {
  PairColumns c;
  c.estimator = estimator;
  c.batch = batch;
  const bool legacy = estimator == Estimator::kLegacy;
  const size_t most = std::min(method.size(), base.size());
  c.prompts.reserve(most);
  for (auto* column : {&c.decode, &c.requests, &c.first_tokens}) column->reserve(most);
  if (legacy) c.published.reserve(most);
  int first_sample = 0;
  bool several_samples = false;
  const int64_t met = for_common_cells(
      method, base, [&](const PromptSample& cell, const SampleRow& m, const SampleRow& b) {
        if (c.prompts.empty()) first_sample = cell.second;
        several_samples = several_samples || cell.second != first_sample;
        if (c.prompts.empty() || c.prompts.back() != cell.first) {
          c.prompts.push_back(cell.first);
          for (auto* column : {&c.decode, &c.requests, &c.first_tokens}) column->emplace_back();
          if (legacy) c.published.emplace_back();
        }
        c.method.add(m);
        c.base.add(b);
        add_to_last(c.decode, decode_of(m, b));
        add_to_last(c.requests, request_of(m, b));
        add_to_last(c.first_tokens, first_token_of(m, b));
        if (legacy) add_to_last(c.published, published_of(m, b));
      });
  c.unpaired = static_cast<int64_t>(method.size()) + static_cast<int64_t>(base.size()) - 2 * met;
  if (several_samples)
    for_common_cells(
        method, base, [&](const PromptSample& cell, const SampleRow& m, const SampleRow& b) {
          c.by_sample[cell.second].push_back(legacy ? published_of(m, b) : decode_of(m, b));
        });
  return c;
}

}  // namespace evalrun::reports
