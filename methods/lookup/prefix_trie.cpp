#include "methods/lookup/prefix_trie.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

// Of a count in answers, against one in the prompt (output_weight of the released program).
constexpr double kAnswerWeight = 1e-4;

}  // namespace

PrefixTrie::PrefixTrie(int vocab, const Limits& limits) : limits_(limits) {
  EVALRUN_CHECK(vocab >= 1 && limits.capacity >= 1 && limits.changed >= 1 && limits.nodes >= 1,
                "{} ids, {} nodes a key, {} changed keys, {} nodes", vocab, limits.capacity,
                limits.changed, limits.nodes);
  key_at_.assign(static_cast<size_t>(vocab), -1);
}

void PrefixTrie::clear() {
  for (const Key& key : keys_) key_at_[static_cast<size_t>(key.token)] = -1;
  keys_.clear();
  nodes_.clear();
  free_ = -1;
  live_ = 0;
  changed_ = 0;
}

void PrefixTrie::reserve(size_t nodes) {
  const size_t wanted = std::max(nodes_.size(), live_ + nodes);  // released ones come first
  if (wanted > nodes_.capacity()) {
    nodes_.reserve(std::max(wanted, 2 * nodes_.capacity()));
    seen_.reserve(nodes_.capacity());
    siblings_.reserve(nodes_.capacity());
  }
  const size_t keys = std::min(keys_.size() + nodes, key_at_.size());
  if (keys > keys_.capacity()) keys_.reserve(std::max(keys, 2 * keys_.capacity()));
}

float& PrefixTrie::count_of(Node& node, Source source) {
  switch (source) {
    case Source::kPrompt:
      return node.prompt;
    case Source::kAnswer:
      return node.answer;
    case Source::kPassingAnswer:
      break;
  }
  return node.passing;
}

double PrefixTrie::weight(const Node& node) {
  return (1 - kAnswerWeight) * static_cast<double>(node.prompt) +
         kAnswerWeight * static_cast<double>(node.answers());
}

int32_t PrefixTrie::add_node(int32_t token) {
  ++live_;
  Node node;
  node.token = token;
  if (free_ < 0) {
    nodes_.push_back(node);
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  const int32_t index = free_;
  free_ = at(index).next;
  at(index) = node;
  return index;
}

int32_t PrefixTrie::child(int32_t parent, int32_t token) const {
  int32_t node = at(parent).first;
  while (node >= 0 && at(node).token != token) node = at(node).next;
  return node;
}

PrefixTrie::Key& PrefixTrie::key_of(int32_t token) {
  int32_t& index = key_at_[static_cast<size_t>(token)];
  if (index < 0) {
    index = static_cast<int32_t>(keys_.size());
    keys_.push_back({token, add_node(token), false, false});
  }
  return keys_[static_cast<size_t>(index)];
}

void PrefixTrie::insert(int32_t key_token, std::span<const int32_t> branch, Source source) {
  if (branch.empty()) return;
  Key& key = key_of(key_token);
  if (source != Source::kAnswer) {
    key.passes = true;
  } else if (!key.changed) {
    key.changed = true;
    ++changed_;
  }
  int32_t node = key.node;
  for (const int32_t token : branch) {
    int32_t below = at(node).first, last = -1;
    while (below >= 0 && at(below).token != token) {
      last = below;
      below = at(below).next;
    }
    if (below < 0) {
      below = add_node(token);
      (last < 0 ? at(node).first : at(last).next) = below;
    }
    node = below;
    count_of(at(node), source) += 1;
  }
}

void PrefixTrie::release(int32_t node) {
  for (int32_t below = at(node).first; below >= 0;) {
    const int32_t next = at(below).next;
    release(below);
    below = next;
  }
  at(node).next = free_;
  free_ = node;
  --live_;
}

template <typename Stays>
void PrefixTrie::prune(int32_t node, const Stays& stays) {
  int32_t kept = -1;
  for (int32_t below = at(node).first; below >= 0;) {
    const int32_t next = at(below).next;
    if (stays(at(below))) {
      prune(below, stays);
      kept = below;
    } else {
      (kept < 0 ? at(node).first : at(kept).next) = next;
      release(below);
    }
    below = next;
  }
}

// Nodes seen once go, the counts of the others are halved.
void PrefixTrie::halve(int32_t node) {
  prune(node, [](Node& below) {
    const bool stays = below.answer > 1;
    below.answer /= 2;
    return stays;
  });
}

void PrefixTrie::end_answer() {
  // No child was seen more often than its parent, so that all below a refused node is refused.
  for (Key& key : keys_) {
    if (!key.passes) continue;
    key.passes = false;
    prune(key.node, [](Node& node) {
      node.prompt = 0;
      node.passing = 0;
      return node.answer > 0;
    });
  }
  if (changed_ >= limits_.changed) {
    changed_ = 0;
    for (Key& key : keys_) {
      if (key.changed && count_below(key.node) > limits_.capacity) halve(key.node);
      key.changed = false;
    }
  }
  const auto most = static_cast<size_t>(limits_.nodes);
  if (below_keys() <= most) return;
  while (below_keys() > most / 2)
    for (const Key& key : keys_) halve(key.node);
}

int PrefixTrie::count_below(int32_t node) const {
  int n = 0;
  for (int32_t below = at(node).first; below >= 0; below = at(below).next)
    n += 1 + count_below(below);
  return n;
}

int PrefixTrie::nodes(int32_t key) const {
  const int32_t index = key_at_[static_cast<size_t>(key)];
  return index < 0 ? 0 : count_below(keys_[static_cast<size_t>(index)].node);
}

float PrefixTrie::count(std::span<const int32_t> path, Source source) const {
  const int32_t node = find(path);
  if (node < 0) return 0;
  Node found = at(node);
  return count_of(found, source);
}

int32_t PrefixTrie::find(std::span<const int32_t> path) const {
  EVALRUN_CHECK(!path.empty(), "a path without its key");
  const int32_t index = key_at_[static_cast<size_t>(path[0])];
  int32_t node = index < 0 ? -1 : keys_[static_cast<size_t>(index)].node;
  for (size_t i = 1; i < path.size() && node >= 0; ++i) node = child(node, path[i]);
  return node;
}

bool PrefixTrie::draft(std::span<const int32_t> query, int rows, int depth, TokenTree& tree) {
  EVALRUN_CHECK(rows >= 2, "{} rows, the root is one", rows);
  const int32_t node = find(query);
  if (node < 0 || at(node).first < 0) return false;
  tree.truncate(1);
  seen_.clear();
  siblings_.clear();
  look(node);
  take(node, 0, depth, rows, bars(rows), tree);
  return true;
}

// All nodes below, depth first.
void PrefixTrie::look(int32_t node) {
  for (int32_t below = at(node).first; below >= 0; below = at(below).next) {
    seen_.push_back({at(below).answers(), weight(at(below)), static_cast<int>(seen_.size())});
    look(below);
  }
}

// Reorders seen_.
PrefixTrie::Bars PrefixTrie::bars(int rows) {
  const auto most = static_cast<size_t>(rows);
  if (seen_.size() <= most) return {};
  const auto end_of = [this](size_t n) { return seen_.begin() + static_cast<std::ptrdiff_t>(n); };
  const size_t by_answer = most / 2;
  std::partial_sort(seen_.begin(), end_of(by_answer), seen_.end(),
                    [](const Seen& a, const Seen& b) {
                      return a.answer > b.answer || (a.answer == b.answer && a.order < b.order);
                    });
  Bars bars{seen_[by_answer - 1].answer, 0};
  // The rows that are left go to the heaviest of the others: those that pass already are behind
  // them.
  const size_t left = most - by_answer;
  const auto nth = end_of(by_answer + left - 1);
  std::nth_element(end_of(by_answer), nth, seen_.end(), [](const Seen& a, const Seen& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.order < b.order);
  });
  bars.weight = nth->weight;
  return bars;
}

void PrefixTrie::take(int32_t node, int parent, int depth, int rows, const Bars& bars,
                      TokenTree& tree) {
  if (depth <= 0) return;
  const size_t begin = siblings_.size();
  for (int32_t below = at(node).first; below >= 0; below = at(below).next) {
    const double w = weight(at(below));
    if (at(below).answers() < bars.answer && w < bars.weight) continue;
    siblings_.push_back({below, w, static_cast<int>(siblings_.size())});
  }
  const size_t end = siblings_.size();
  std::sort(siblings_.begin() + static_cast<std::ptrdiff_t>(begin), siblings_.end(),
            [](const Sibling& a, const Sibling& b) {
              return a.weight > b.weight || (a.weight == b.weight && a.order < b.order);
            });
  for (size_t i = begin; i < end && tree.size() < rows; ++i) {
    const int32_t below = siblings_[i].node;
    take(below, tree.add(at(below).token, parent), depth - 1, rows, bars, tree);
  }
  siblings_.resize(begin);
}

}  // namespace evalrun::methods
