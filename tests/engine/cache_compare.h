// What a session's caches hold, and trees of several sequences in one forward.
#pragma once
#include <span>
#include <vector>

#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {

// Keys and values of a sequence: [layer][position][k, then v].
inline std::vector<float> cache_of(const Session& s, int sequence) {
  const ModelConfig& c = s.model().config();
  const auto width = static_cast<size_t>(c.kv_dim());
  std::vector<float> all;
  std::vector<float> k(width), v(width);
  for (int l = 0; l < c.n_layers; ++l)
    for (int p = 0; p < s.length(sequence); ++p) {
      s.read_kv(l, p, sequence, k, v);
      all.insert(all.end(), k.begin(), k.end());
      all.insert(all.end(), v.begin(), v.end());
    }
  return all;
}

// Of the row that would follow a sequence.
inline std::vector<float> next_logits(Session& s, int sequence, int32_t token) {
  const Row row{.token = token, .sequence = sequence};
  return copy(s.forward({.rows = {&row, 1}}).logits_row(0));
}

// Lengths, keys, values and what follows from them, of all sequences.
inline ::testing::AssertionResult same_sequences(Session& a, Session& b) {
  for (int s = 0; s < a.options().n_sequences; ++s) {
    if (a.length(s) != b.length(s))
      return ::testing::AssertionFailure()
             << "sequence " << s << " has " << a.length(s) << " tokens and " << b.length(s);
    if (!same_bits(cache_of(a, s), cache_of(b, s)))
      return ::testing::AssertionFailure() << "other keys or values in sequence " << s;
    if (a.length(s) < a.capacity() && !same_bits(next_logits(a, s, 7), next_logits(b, s, 7)))
      return ::testing::AssertionFailure() << "other logits after sequence " << s;
  }
  return ::testing::AssertionSuccess();
}

struct ManyTrees {
  std::vector<Row> rows;
  std::vector<std::vector<int>> paths;  // [sequence] from a root to a node drawn at random
};

// A tree of n rows for each of these sequences: one after the other, or their rows in turn. The
// last but one commits nothing where there are several.
inline ManyTrees trees_of(const std::vector<int>& sequences, int n, int vocab, uint64_t seed) {
  const int many = static_cast<int>(sequences.size());
  const bool in_turn = seed % 2 == 1;
  base::Rng rng(seed);
  ManyTrees all;
  all.rows.resize(static_cast<size_t>(n * many));
  for (int t = 0; t < many; ++t) {
    const auto place = [&](int i) { return in_turn ? i * many + t : t * n + i; };
    const auto tree = random_tree(n, vocab, seed + 31 * static_cast<uint64_t>(t), 3);
    for (int i = 0; i < n; ++i) {
      Row& r = all.rows[static_cast<size_t>(place(i))];
      r = tree[static_cast<size_t>(i)];
      r.sequence = sequences[static_cast<size_t>(t)];
      if (r.parent >= 0) r.parent = place(r.parent);
    }
    std::vector<int> path = path_nodes(tree, static_cast<int>(rng.below(static_cast<uint64_t>(n))));
    if (many > 1 && t == many - 2) path.clear();
    for (int& row : path) row = place(row);
    all.paths.push_back(path);
  }
  return all;
}

// The commit of all of them, the last sequence first.
inline std::vector<SequencePath> commits_of(const std::vector<int>& sequences,
                                            const ManyTrees& trees) {
  std::vector<SequencePath> list;
  for (size_t t = sequences.size(); t-- > 0;) list.push_back({sequences[t], trees.paths[t]});
  return list;
}

}  // namespace evalrun::engine::testing
