// Branches of text by their leading token: for each key token a trie of what followed it, in which
// a node counts how often its path was seen, in the prompt and in answers separately. PIA's cache
// (methods/lookup/pia.cpp).
//
// Prompts are forgotten when their answer ends, and with them answers that pass; the others stay
// until their trie, or all of them, are too large. Nothing is allocated by insert() and draft() for
// as many nodes as reserve() promised.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "methods/token_tree.h"

namespace evalrun::methods {

class PrefixTrie {
 public:
  // kPassingAnswer: counts as an answer, and is forgotten with the prompt.
  enum class Source { kPrompt, kAnswer, kPassingAnswer };
  struct Limits {
    int capacity = 512;  // nodes of a key that answers have seen; more are pruned
    int changed = 1024;  // keys that must have changed before any is pruned
    // In all, below keys, from answer to answer. When there are more, counts are halved until half
    // as many are left, so that those that were seen least go first.
    int nodes = 1 << 24;
  };
  PrefixTrie(int vocab, const Limits& limits);

  void clear();
  // Room for `nodes` more, keys included.
  void reserve(size_t nodes);
  // Adds one to every node of the path `branch` below `key`. An empty branch adds nothing.
  void insert(int32_t key, std::span<const int32_t> branch, Source source);
  // Forgets the prompt and what passes: their counts, and nodes that no answer has seen which
  // stays. Where `changed` keys have changed, those with more than `capacity` nodes are pruned:
  // nodes seen once go, the counts of the others are halved. Then Limits::nodes holds.
  void end_answer();

  // What followed `query` (a key, then a path below it) becomes all that stands below the root of
  // `tree`: at most `rows` rows, the root included, and `depth` levels. False, and the tree is as
  // it was, when nothing followed.
  //
  // A node weighs its count in the prompt, and 1e-4 of its count in answers. Of more nodes than
  // rows those pass that answers have seen most often, for half of the rows, and the heaviest for
  // the other half; they are taken depth first, of siblings the heaviest first, until the rows are
  // used up.
  bool draft(std::span<const int32_t> query, int rows, int depth, TokenTree& tree);

  int nodes(int32_t key) const;                                     // below a key
  size_t nodes() const { return live_; }                            // below all keys, keys included
  size_t bytes() const { return live_ * sizeof(Node); }             // of these
  float count(std::span<const int32_t> path, Source source) const;  // 0 = not there

 private:
  struct Node {
    int32_t token = -1;
    int32_t first = -1, next = -1;              // child, sibling; in order of insertion
    float prompt = 0, answer = 0, passing = 0;  // how often it was seen, by Source
    float answers() const { return answer + passing; }
  };
  struct Key {
    int32_t token, node;
    bool passes = false;   // seen since the last answer ended, in what is forgotten then
    bool changed = false;  // since the last pruning
  };
  struct Seen {  // a node below the query
    float answer;
    double weight;
    int order;
  };
  struct Sibling {
    int32_t node;
    double weight;
    int order;
  };
  struct Bars {  // a node passes that reaches one of them
    float answer = 0;
    double weight = 0;
  };

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  static float& count_of(Node& node, Source source);
  static double weight(const Node& node);
  int32_t add_node(int32_t token);
  int32_t child(int32_t parent, int32_t token) const;
  Key& key_of(int32_t token);
  int32_t find(std::span<const int32_t> path) const;  // -1 = not there
  int count_below(int32_t node) const;
  // Drops children of `node`, with all below them, that `stays` refuses, and asks it of the others'
  // children.
  template <typename Stays>
  void prune(int32_t node, const Stays& stays);
  void halve(int32_t node);
  size_t below_keys() const { return live_ - keys_.size(); }
  void release(int32_t node);
  void look(int32_t node);
  Bars bars(int rows);
  void take(int32_t node, int parent, int depth, int rows, const Bars& bars, TokenTree& tree);

  const Limits limits_;
  std::vector<int32_t> key_at_;  // [vocab] -> keys_, -1 = none
  std::vector<Key> keys_;
  std::vector<Node> nodes_;
  int32_t free_ = -1;  // released nodes, by next
  size_t live_ = 0;
  int changed_ = 0;  // keys
  // Of one draft.
  std::vector<Seen> seen_;
  std::vector<Sibling> siblings_;
};

}  // namespace evalrun::methods
