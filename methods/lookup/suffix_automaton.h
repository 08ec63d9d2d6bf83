// The suffix automaton of one text or several, which grows token by token (Blumer et al. 1985, "The
// smallest automaton recognizing the subwords of a text", Theoretical Computer Science 40). A path
// from state 0 spells a phrase of the texts. Phrases with the same occurrences share a state.
//
// A token costs constant time, amortised, however long the texts are. They have at most two states
// and three edges a token. Phrases of up to `counted` tokens can have their occurrences counted,
// which costs at most `counted` steps a token.
//
// Nothing is allocated by add() for as many tokens as reserve() promised.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace evalrun::methods {

class SuffixAutomaton {
 public:
  // A phrase: the last `length` tokens of what leads to `state`.
  struct Match {
    int32_t state = 0;
    int length = 0;
    bool operator==(const Match&) const = default;
  };

  // `counted`: the longest phrases whose occurrences are counted, 0 = none.
  explicit SuffixAutomaton(int counted = 0);

  void clear();
  void reserve(size_t tokens);  // room for `tokens` more, separators between texts included
  // Token ids >= 0. At most kMostTokens, separators included.
  void add(int32_t token);
  void end_text();  // what comes is another text: no phrase runs on into it

  // The longest end of `match` and then `token` that is a phrase of the texts, and of at most
  // `most` tokens. A match made before tokens were added may be gone on from.
  Match follow(Match match, int32_t token, int most) const;
  // The same phrase, or its end of `most` tokens, in the state that holds it now.
  Match shortened(Match match, int most) const;
  // The longest phrase that is an end of this state's phrases and has other occurrences; {0, 0}
  // from single tokens on.
  Match next_shorter(int32_t state) const {
    const int32_t link = at(state).link;
    return link <= 0 ? Match{} : Match{link, at(link).length};
  }

  // The place in the texts after the first occurrence of a state's phrases; token_at() tells what
  // comes there, -1 = the text ends.
  size_t first_end(int32_t state) const { return static_cast<size_t>(at(state).end); }
  int32_t token_at(size_t place) const { return place < text_.size() ? text_[place] : -1; }
  // Occurrences of a phrase of up to `counted` tokens, by its state.
  int count(int32_t state) const { return at(state).count; }
  // visit(token, state) of phrases one token longer, at most `most` of them. Those seen last come
  // first where phrases are counted.
  template <typename Visit>
  void visit_longer(int32_t state, int most, const Visit& visit) const {
    int n = 0;
    for (int32_t e = at(state).edges; e >= 0 && n < most; e = edge(e).next, ++n)
      visit(edge(e).token, edge(e).to);
  }

  size_t tokens() const { return text_.size(); }  // separators included
  size_t states() const { return states_.size(); }
  size_t edges() const { return edges_.size(); }
  size_t bytes() const {
    return states_.size() * sizeof(State) + edges_.size() * sizeof(Edge) +
           (slots_.size() + text_.size()) * sizeof(int32_t);
  }

 private:
  struct State {
    int32_t length = 0;  // of the longest phrase
    int32_t link = -1;   // the state of the longest end with more occurrences
    int32_t edges = -1;  // the first one
    int32_t end = 0;     // place after the first occurrence
    int32_t count = 0;
  };
  struct Edge {
    int32_t from, token, to;
    int32_t previous, next;  // of the same state
  };

 public:
  // At most, once there are as many tokens as reserve() promised: a table of edges is between a
  // quarter and half full.
  static constexpr size_t kBytesPerToken =
      2 * sizeof(State) + 3 * (sizeof(Edge) + 4 * sizeof(int32_t)) + sizeof(int32_t);
  static constexpr double most_bytes(double tokens) {
    return static_cast<double>(kBytesPerToken) * tokens;
  }
  static constexpr size_t kMostTokens = size_t{1} << 29;

 private:
  State& at(int32_t state) { return states_[static_cast<size_t>(state)]; }
  const State& at(int32_t state) const { return states_[static_cast<size_t>(state)]; }
  Edge& edge(int32_t e) { return edges_[static_cast<size_t>(e)]; }
  const Edge& edge(int32_t e) const { return edges_[static_cast<size_t>(e)]; }
  int32_t edge_of(int32_t state, int32_t token) const;  // -1 = none
  size_t slot_of(int32_t state, int32_t token) const;   // the edge's, or the free one for it
  int32_t add_state(const State& state);
  void add_edge(int32_t from, int32_t token, int32_t to);
  void link_first(int32_t e);
  void move_to_front(int32_t e);
  void make_slots(size_t edges);
  int32_t state_of_longest(int32_t state, int32_t e);
  void count_ends(int32_t token);

  const int counted_;
  std::vector<int32_t> text_;  // -1 after each text but the last
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> slots_;  // hash table of edges, -1 = free; a power of two
  int shift_ = 0;               // of a hash to a slot
  int32_t last_ = 0;            // the state of the whole last text
  Match tail_;                  // its last tokens, at most counted_
};

}  // namespace evalrun::methods
