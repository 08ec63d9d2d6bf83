// Forwards whose attention the tests compute and divide: chains, trees, several sequences, rows
// kept from a forward before, windows, prefix banks.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/forward_plan.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {

inline constexpr int kSessionTokens = 1024;
inline constexpr int kAttentionRows = 70;

// Three queries per kv head, as in the default model; lanes are left over.
inline ModelConfig attention_config(int window) {
  ModelConfig c = small_config();
  c.n_heads = 6, c.n_kv_heads = 2, c.head_dim = 24;
  c.sliding_window = window;
  return c;
}

struct AttentionCase {
  std::string name;
  std::vector<int> lengths;  // of the sequences
  std::vector<Row> rows;
  int kept = 0;  // of the rows, from a forward before
  int window = 0;
  int prefix = 0;  // length of the bank

  int new_rows() const { return static_cast<int>(rows.size()) - kept; }
  // The plan of the first n new rows.
  void build(ForwardPlan& plan, int n, const PrefixBank& bank) const {
    const ModelConfig config = attention_config(window);
    ForwardRequest request;
    request.prefix = &bank;
    const std::span<const Row> all(rows);
    if (kept > 0) {
      request.rows = all.first(static_cast<size_t>(kept));
      plan.build(request, lengths, kSessionTokens, config);
      request.extend = true;
    }
    request.rows = all.subspan(static_cast<size_t>(kept), static_cast<size_t>(n));
    plan.build(request, lengths, kSessionTokens, config);
  }
};

// Rows of two sequences in turns of five, each a chain.
inline std::vector<Row> rows_of_two_sequences() {
  std::vector<Row> rows(kAttentionRows);
  int last[2] = {-1, -1};
  for (int i = 0; i < kAttentionRows; ++i) {
    Row& r = rows[static_cast<size_t>(i)];
    r.token = 1, r.sequence = i / 5 % 2;
    r.parent = last[r.sequence];
    last[r.sequence] = i;
  }
  return rows;
}

inline std::vector<AttentionCase> attention_cases(int context) {
  const auto tree = [](int bias) { return random_tree(kAttentionRows, 101, 3, bias); };
  std::vector<Row> roots = tree(1), banked = tree(3);
  for (Row& r : roots) r.parent = -1;
  for (size_t i = 0; i < banked.size(); ++i) banked[i].prefix = i / 3 % 2 == 1;
  return {{"chain", {context}, tree(1)},
          {"tree", {context}, tree(0)},
          {"deep tree", {context}, tree(3)},
          {"roots", {context}, roots},
          {"two sequences", {context, context / 2 + 3}, rows_of_two_sequences()},
          {"rows kept", {context}, tree(2), 20},
          {"window", {context}, tree(1), 0, 50},
          {"prefix bank", {context}, banked, 0, 0, 130}};
}

}  // namespace evalrun::engine::testing
