#include "methods/lookup/prefix_trie.h"

#include <algorithm>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::methods {
namespace {

// Of a count in answers, against one in the prompt (output_weight of the released program).
constexpr double kAnswerWeight = 1e-4;
// Places in the buffers of a draft: some of these for each row of the largest draft. What they are
// short of, where siblings are very uneven, is allocated once.
constexpr size_t kDraftBuffer = 4096;

}  // namespace

PrefixTrie::Blocks::Blocks(const Blocks& other) {
  reserve(other.blocks_.size() << kBits);
  for (size_t i = 0; i < blocks_.size(); ++i)
    std::copy_n(other.blocks_[i].get(), kNodes, blocks_[i].get());
}

PrefixTrie::Blocks& PrefixTrie::Blocks::operator=(Blocks other) noexcept {
  blocks_.swap(other.blocks_);
  return *this;
}

void PrefixTrie::Blocks::reserve(size_t nodes) {
  while (blocks_.size() << kBits < nodes) blocks_.emplace_back(new Node[kNodes]);
}

size_t PrefixTrie::Blocks::bytes() const {
  return (blocks_.size() << kBits) * sizeof(Node) + blocks_.capacity() * sizeof(blocks_[0]);
}

PrefixTrie::PrefixTrie(int vocab, const Limits& limits) : limits_(limits) {
  EVALRUN_CHECK(vocab >= 1 && limits.capacity >= 1 && limits.changed >= 1 && limits.nodes >= 1,
                "{} ids, {} nodes a key, {} changed keys, {} nodes", vocab, limits.capacity,
                limits.changed, limits.nodes);
  key_at_.assign(static_cast<size_t>(vocab), -1);
}

void PrefixTrie::clear() {
  for (const Key& key : keys_) key_at_[static_cast<size_t>(key.token)] = -1;
  keys_.clear();
  used_ = live_ = 0;
  free_ = -1;
  born_ = 0;
  changed_ = 0;
}

void PrefixTrie::reserve(size_t nodes) {
  nodes_.reserve(std::max(used_, live_ + nodes));  // released ones come first
  const size_t keys = std::min(keys_.size() + nodes, key_at_.size());
  if (keys > keys_.capacity())
    keys_.reserve(std::min(std::max(keys, 2 * keys_.capacity()), key_at_.size()));
  siblings_.reserve(kDraftBuffer);
  tied_.reserve(kDraftBuffer);
  answered_.reserve(kDraftBuffer);
  weighed_.reserve(kDraftBuffer);
}

double PrefixTrie::most_bytes(int vocab, double kept) {
  const double of_key = sizeof(int32_t) + sizeof(Key) + kNodeBytes;
  const double begun = (kNodeBytes << Blocks::kBits) + 1024;  // a block, and the list of blocks
  const double buffers = kDraftBuffer * (2 * sizeof(int32_t) + sizeof(Answered) + sizeof(Weighed));
  return vocab * of_key + kept * kMostBytesPerNode + begun + buffers;
}

size_t PrefixTrie::allocated_bytes() const {
  const auto of = [](const auto& v) { return v.capacity() * sizeof(v[0]); };
  return nodes_.bytes() + of(key_at_) + of(keys_) + of(siblings_) + of(tied_) + of(answered_) +
         of(weighed_);
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

// Any order of tokens does that has nothing to do with how often they are seen.
bool PrefixTrie::is_left(int32_t token, int32_t of) {
  return base::mix64(static_cast<uint64_t>(token)) < base::mix64(static_cast<uint64_t>(of));
}

bool PrefixTrie::before(int32_t a, int32_t b) const {
  const double of_a = weight(at(a)), of_b = weight(at(b));
  return of_a > of_b || (of_a == of_b && at(a).born < at(b).born);
}

int32_t PrefixTrie::add_node(int32_t token) {
  int32_t index = free_;
  if (index >= 0) {
    free_ = at(index).left;
  } else {
    nodes_.reserve(used_ + 1);
    index = static_cast<int32_t>(used_++);
  }
  ++live_;
  at(index) = {token, -1, -1, -1, born_++, 0, 0, 0, 0};
  return index;
}

int32_t PrefixTrie::child(int32_t parent, int32_t token) const {
  int32_t node = at(parent).first;
  while (node >= 0 && at(node).token != token)
    node = is_left(token, at(node).token) ? at(node).left : at(node).right;
  return node;
}

void PrefixTrie::refresh(Node& node) {
  node.most = node.answers();
  for (const int32_t below : {node.left, node.right})
    if (below >= 0) node.most = std::max(node.most, at(below).most);
}

template <typename Make, typename Found>
int32_t PrefixTrie::place(int32_t root, int32_t token, const Make& make, const Found& found) {
  if (root < 0) return make();
  Node& node = at(root);
  if (node.token == token) {
    found(root);
    node.most = std::max(node.most, node.answers());
    return root;
  }
  const bool left = is_left(token, node.token);
  int32_t& side = left ? node.left : node.right;
  const int32_t below = side = place(side, token, make, found);
  node.most = std::max(node.most, at(below).most);
  if (!before(below, root)) return root;
  int32_t& inner = left ? at(below).right : at(below).left;
  side = inner;
  inner = root;
  refresh(node);
  refresh(at(below));
  return below;
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
    int32_t below = -1;
    const auto seen = [&](int32_t found) {
      below = found;
      count_of(at(found), source) += 1;
    };
    const auto make = [&] {
      seen(add_node(token));
      at(below).most = at(below).answers();
      return below;
    };
    at(node).first = place(at(node).first, token, make, seen);
    node = below;
  }
}

void PrefixTrie::release_siblings(int32_t root) {
  if (root < 0) return;
  release_siblings(at(root).left);
  release_siblings(at(root).right);
  release(root);
}

void PrefixTrie::release(int32_t node) {
  release_siblings(at(node).first);
  at(node).left = free_;
  free_ = node;
  --live_;
}

void PrefixTrie::gather(int32_t root) {
  if (root < 0) return;
  siblings_.push_back(root);
  gather(at(root).left);
  gather(at(root).right);
}

// `stays` changes counts, and so the order of those that are left.
template <typename Stays>
void PrefixTrie::prune(int32_t node, const Stays& stays) {
  const size_t begin = siblings_.size();
  gather(at(node).first);
  const size_t end = siblings_.size();
  int32_t root = -1;
  for (size_t i = begin; i < end; ++i) {
    const int32_t below = siblings_[i];
    if (!stays(at(below))) {
      release(below);
      continue;
    }
    prune(below, stays);
    at(below).left = at(below).right = -1;
    at(below).most = at(below).answers();
    root = place(
        root, at(below).token, [&] { return below; }, [](int32_t) {});
  }
  at(node).first = root;
  siblings_.resize(begin);
}

// Among siblings only the order matters.
void PrefixTrie::number_anew(int32_t node) {
  const size_t begin = siblings_.size();
  gather(at(node).first);
  const size_t end = siblings_.size();
  std::sort(siblings_.begin() + static_cast<std::ptrdiff_t>(begin), siblings_.end(),
            [this](int32_t a, int32_t b) { return at(a).born < at(b).born; });
  for (size_t i = begin; i < end; ++i) {
    at(siblings_[i]).born = static_cast<uint32_t>(i - begin);
    number_anew(siblings_[i]);
  }
  born_ = std::max(born_, static_cast<uint32_t>(end - begin));
  siblings_.resize(begin);
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
      int below = 0;
      if (key.changed) count_below(at(key.node).first, limits_.capacity + 1, below);
      if (below > limits_.capacity) halve(key.node);
      key.changed = false;
    }
  }
  hold_limit();
  if (born_ > limits_.births) {
    born_ = 0;
    for (const Key& key : keys_) number_anew(key.node);
  }
}

void PrefixTrie::hold_limit() {
  const auto most = static_cast<size_t>(limits_.nodes);
  if (below_keys() <= most) return;
  while (below_keys() > most / 2)
    for (const Key& key : keys_) halve(key.node);
}

void PrefixTrie::count_below(int32_t root, int most, int& n) const {
  if (root < 0 || n >= most) return;
  ++n;
  for (const int32_t next : {at(root).first, at(root).left, at(root).right})
    count_below(next, most, n);
}

int PrefixTrie::nodes(int32_t key) const {
  const int32_t index = key_at_[static_cast<size_t>(key)];
  int n = 0;
  if (index >= 0)
    count_below(at(keys_[static_cast<size_t>(index)].node).first, std::numeric_limits<int>::max(),
                n);
  return n;
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
  looked_at_ = 0;
  siblings_.clear();
  const int32_t root = at(node).first;
  take(root, 0, depth, rows, bars(root, rows), tree);
  return true;
}

// No node was seen more often than the one above it, so that the best of all are found from above,
// one after another, by what is best of those that are within reach.
PrefixTrie::Bars PrefixTrie::bars(int32_t root, int rows) {
  int n = 0;
  count_below(root, rows + 1, n);
  looked_at_ += static_cast<size_t>(n);
  if (n <= rows) return {};
  const auto by_answer = static_cast<size_t>(rows / 2);

  const auto fewer = [](const Answered& a, const Answered& b) {
    return a.most < b.most || (a.most == b.most && !a.alone && b.alone);
  };
  const auto offer_answered = [&](int32_t node) {
    if (node < 0) return;
    ++looked_at_;
    answered_.push_back({at(node).most, false, node});
    std::push_heap(answered_.begin(), answered_.end(), fewer);
  };
  answered_.clear();
  offer_answered(root);
  Bars bars;
  size_t found = 0, tied = 0;  // tied: of those found, with as many as the last
  while (found < by_answer) {
    std::pop_heap(answered_.begin(), answered_.end(), fewer);
    const Answered best = answered_.back();
    answered_.pop_back();
    if (best.most <= 0) return {};  // all pass
    if (best.alone) {
      tied = best.most == bars.answer ? tied + 1 : 1;
      bars.answer = best.most;
      ++found;
      offer_answered(at(best.node).first);
      continue;
    }
    answered_.push_back({at(best.node).answers(), true, best.node});
    std::push_heap(answered_.begin(), answered_.end(), fewer);
    offer_answered(at(best.node).left);
    offer_answered(at(best.node).right);
  }
  tied_.clear();
  first_tied(root, bars.answer, tied);
  std::sort(tied_.begin(), tied_.end());

  // The rows that are left go to the heaviest of the others.
  const auto lighter = [](const Weighed& a, const Weighed& b) { return a.weight < b.weight; };
  const auto offer = [&](int32_t node) {
    if (node < 0) return;
    ++looked_at_;
    weighed_.push_back({weight(at(node)), node});
    std::push_heap(weighed_.begin(), weighed_.end(), lighter);
  };
  weighed_.clear();
  offer(root);
  for (size_t left = static_cast<size_t>(rows) - by_answer; left > 0;) {
    std::pop_heap(weighed_.begin(), weighed_.end(), lighter);
    const Weighed best = weighed_.back();
    weighed_.pop_back();
    const Node& node = at(best.node);
    for (const int32_t next : {node.first, node.left, node.right}) offer(next);
    const bool passes =
        node.answers() > bars.answer || (node.answers() == bars.answer &&
                                         std::binary_search(tied_.begin(), tied_.end(), best.node));
    if (passes) continue;
    bars.weight = best.weight;
    --left;
  }
  return bars;
}

// Of nodes with so many answers the first `most`, depth first, siblings in the order in which they
// came.
void PrefixTrie::first_tied(int32_t root, float answers, size_t most) {
  const size_t begin = siblings_.size();
  const auto offer = [&](int32_t node) {
    if (node < 0 || at(node).most < answers) return;
    ++looked_at_;
    siblings_.push_back(node);
  };
  offer(root);
  for (size_t i = begin; i < siblings_.size(); ++i) {
    const Node& node = at(siblings_[i]);
    offer(node.left);
    offer(node.right);
  }
  const size_t end = siblings_.size();
  std::sort(siblings_.begin() + static_cast<std::ptrdiff_t>(begin), siblings_.end(),
            [this](int32_t a, int32_t b) { return at(a).born < at(b).born; });
  for (size_t i = begin; i < end && tied_.size() < most; ++i) {
    const int32_t node = siblings_[i];
    if (at(node).answers() < answers) continue;
    if (at(node).answers() == answers) tied_.push_back(node);
    if (tied_.size() < most) first_tied(at(node).first, answers, most);
  }
  siblings_.resize(begin);
}

// The siblings `root`, the heaviest first, those left out that pass no bar.
void PrefixTrie::take(int32_t root, int parent, int depth, int rows, const Bars& bars,
                      TokenTree& tree) {
  if (depth <= 0) return;
  const auto begin = static_cast<std::ptrdiff_t>(siblings_.size());
  const auto later = [this](int32_t a, int32_t b) { return before(b, a); };
  const auto offer = [&](int32_t node) {
    if (node < 0 || (at(node).most < bars.answer && weight(at(node)) < bars.weight)) return;
    ++looked_at_;
    siblings_.push_back(node);
    std::push_heap(siblings_.begin() + begin, siblings_.end(), later);
  };
  offer(root);
  while (static_cast<std::ptrdiff_t>(siblings_.size()) > begin && tree.size() < rows) {
    std::pop_heap(siblings_.begin() + begin, siblings_.end(), later);
    const Node& node = at(siblings_.back());
    siblings_.pop_back();
    offer(node.left);
    offer(node.right);
    if (node.answers() < bars.answer && weight(node) < bars.weight) continue;
    take(node.first, tree.add(node.token, parent), depth - 1, rows, bars, tree);
  }
  siblings_.resize(static_cast<size_t>(begin));
}

}  // namespace evalrun::methods
