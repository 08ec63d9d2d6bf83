// Branches of text by their leading token: for each key token a trie of what followed it, in which
// a node counts how often its path was seen, in the prompt and in answers separately. PIA's cache
// (methods/lookup/pia.cpp).
//
// Prompts are forgotten when their answer ends, and with them answers that pass; the others stay
// until their trie, or all of them, are too large. Nothing is allocated by insert() and draft() for
// as many nodes as reserve() promised.
//
// What a step costs does not grow with what is below a key. The children of a node are a treap
// (Seidel & Aragon 1996, "Randomized search trees"): a search tree by a hash of the token, a heap
// by weight. So a child is found, counted and moved up in the logarithm of the number of its
// siblings, and a draft looks at the heaviest first and stops when it has its rows.
#pragma once
#include <cstdint>
#include <memory>
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
    int nodes = 1 << 23;
    uint32_t births = 1u << 31;  // nodes made before their order is written anew
  };
  static constexpr size_t kNodeBytes = 36;
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
  // Limits::nodes alone. For a trie that is filled with more than one answer at a time.
  void hold_limit();

  // What followed `query` (a key, then a path below it) becomes all that stands below the root of
  // `tree`: at most `rows` rows, the root included, and `depth` levels. False, and the tree is as
  // it was, when nothing followed.
  //
  // A node weighs its count in the prompt, and 1e-4 of its count in answers. Of more nodes than
  // rows those pass that answers have seen most often, for half of the rows, and the heaviest for
  // the other half; they are taken depth first, of siblings the heaviest first, until the rows are
  // used up.
  bool draft(std::span<const int32_t> query, int rows, int depth, TokenTree& tree);

  int nodes(int32_t key) const;                        // below a key
  size_t nodes() const { return live_; }               // below all keys, keys included
  size_t bytes() const { return live_ * kNodeBytes; }  // of these
  size_t allocated_bytes() const;                      // with all that is reserved
  // What allocated_bytes() become at most where `kept` nodes below keys go on from answer to
  // answer, and besides for each node that reserve() promised in one answer: with its share of the
  // list of blocks.
  static double most_bytes(int vocab, double kept);
  static constexpr double kMostBytesPerNode = kNodeBytes + 0.01;
  size_t looked_at() const { return looked_at_; }  // nodes, some twice, by the last draft
  float count(std::span<const int32_t> path, Source source) const;  // 0 = not there

 private:
  struct Node {  // without initial values, so that room that is not used yet is not touched
    int32_t token;
    int32_t first;                  // root of its children
    int32_t left, right;            // among its siblings
    uint32_t born;                  // siblings in order of insertion
    float prompt, answer, passing;  // how often it was seen, by Source
    float most;                     // answers() of it and the siblings below it, the largest
    float answers() const { return answer + passing; }
  };
  static_assert(sizeof(Node) == kNodeBytes);
  // Nodes in blocks: more of them need no copy of all.
  class Blocks {
   public:
    static constexpr int kBits = 12;
    Blocks() = default;
    Blocks(const Blocks& other);
    Blocks(Blocks&&) = default;
    Blocks& operator=(Blocks other) noexcept;
    Node& operator[](int32_t node) const {
      return blocks_[static_cast<size_t>(node) >> kBits][static_cast<size_t>(node) & kLast];
    }
    void reserve(size_t nodes);
    size_t bytes() const;

   private:
    static constexpr size_t kNodes = size_t{1} << kBits, kLast = kNodes - 1;
    std::vector<std::unique_ptr<Node[]>> blocks_;
  };
  struct Key {
    int32_t token, node;
    bool passes = false;   // seen since the last answer ended, in what is forgotten then
    bool changed = false;  // since the last pruning
  };
  struct Bars {  // a node passes that reaches one of them
    float answer = 0;
    double weight = 0;
  };
  struct Answered {  // a node, or it and its siblings below with all their children
    float most;
    bool alone;
    int32_t node;
  };
  struct Weighed {
    double weight;
    int32_t node;
  };

  Node& at(int32_t node) { return nodes_[node]; }
  const Node& at(int32_t node) const { return nodes_[node]; }
  static float& count_of(Node& node, Source source);
  static double weight(const Node& node);
  static bool is_left(int32_t token, int32_t of);
  bool before(int32_t a, int32_t b) const;  // siblings in the order in which they are drafted
  int32_t add_node(int32_t token);
  int32_t child(int32_t parent, int32_t token) const;
  // The siblings `root` with `token` among them: `make()` gives a node where it is missing, `found`
  // may make it heavier.
  template <typename Make, typename Found>
  int32_t place(int32_t root, int32_t token, const Make& make, const Found& found);
  void refresh(Node& node);  // its most
  Key& key_of(int32_t token);
  int32_t find(std::span<const int32_t> path) const;  // -1 = not there
  // Counts `root`, its siblings and all below them, up to `most`.
  void count_below(int32_t root, int most, int& n) const;
  void gather(int32_t root);  // siblings
  // Drops children of `node`, with all below them, that `stays` refuses, and asks it of the others'
  // children.
  template <typename Stays>
  void prune(int32_t node, const Stays& stays);
  void halve(int32_t node);
  void number_anew(int32_t node);
  size_t below_keys() const { return live_ - keys_.size(); }
  void release(int32_t node);
  void release_siblings(int32_t root);
  Bars bars(int32_t root, int rows);
  void first_tied(int32_t root, float answers, size_t most);
  void take(int32_t root, int parent, int depth, int rows, const Bars& bars, TokenTree& tree);

  const Limits limits_;
  std::vector<int32_t> key_at_;  // [vocab] -> keys_, -1 = none
  std::vector<Key> keys_;
  Blocks nodes_;
  size_t used_ = 0;    // of these, released ones included
  int32_t free_ = -1;  // released nodes, by left
  size_t live_ = 0;
  uint32_t born_ = 0;
  int changed_ = 0;  // keys
  // Of one draft; siblings_ also of a pruning.
  std::vector<int32_t> siblings_, tied_;
  std::vector<Answered> answered_;
  std::vector<Weighed> weighed_;
  size_t looked_at_ = 0;
};

}  // namespace evalrun::methods
