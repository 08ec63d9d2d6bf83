#include "methods/lookup/suffix_automaton.h"

#include <algorithm>
#include <bit>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

constexpr size_t kFewestSlots = 64;

}  // namespace

SuffixAutomaton::SuffixAutomaton(int counted) : counted_(counted) {
  EVALRUN_CHECK(counted >= 0);
  make_slots(0);
  clear();
}

void SuffixAutomaton::clear() {
  text_.clear();
  edges_.clear();
  states_.assign(1, State{});
  std::fill(slots_.begin(), slots_.end(), -1);
  last_ = 0;
  tail_ = {};
}

void SuffixAutomaton::reserve(size_t tokens) {
  text_.reserve(text_.size() + tokens);
  states_.reserve(states_.size() + 2 * tokens);
  edges_.reserve(edges_.size() + 3 * tokens);
  if (2 * (edges_.size() + 3 * tokens) > slots_.size()) make_slots(edges_.size() + 3 * tokens);
}

void SuffixAutomaton::end_text() {
  if (text_.empty() || text_.back() < 0) return;
  text_.push_back(-1);
  last_ = 0;
  tail_ = {};
}

void SuffixAutomaton::add(int32_t token) {
  EVALRUN_CHECK(token >= 0 && text_.size() < kMostTokens);
  text_.push_back(token);
  if (const int32_t known = edge_of(last_, token); known >= 0) {
    // An earlier text has all of this one.
    last_ = state_of_longest(last_, known);
  } else {
    const int32_t state = add_state(
        {.length = at(last_).length + 1, .link = 0, .end = static_cast<int32_t>(text_.size())});
    int32_t from = last_, e = -1;
    for (; from >= 0; from = at(from).link) {
      e = edge_of(from, token);
      if (e >= 0) break;
      add_edge(from, token, state);
    }
    if (from >= 0) {
      const int32_t link = state_of_longest(from, e);
      at(state).link = link;
    }
    last_ = state;
  }
  if (counted_ > 0) count_ends(token);
}

// Where edge `e` of `state` leads to must have no longer phrases than those of `state` with the
// token: its shorter ones occur where the longer ones do not, from now on, and get a state of their
// own.
int32_t SuffixAutomaton::state_of_longest(int32_t state, int32_t e) {
  const int32_t token = edge(e).token, whole = edge(e).to;
  const int32_t length = at(state).length + 1;
  if (at(whole).length == length) return whole;
  const int32_t part = add_state(
      {.length = length, .link = at(whole).link, .end = at(whole).end, .count = at(whole).count});
  int32_t oldest = at(whole).edges;
  while (oldest >= 0 && edge(oldest).next >= 0) oldest = edge(oldest).next;
  for (; oldest >= 0; oldest = edge(oldest).previous)
    add_edge(part, edge(oldest).token, edge(oldest).to);
  at(whole).link = part;
  for (int32_t from = state; from >= 0; from = at(from).link) {
    const int32_t to_whole = edge_of(from, token);
    if (edge(to_whole).to != whole) break;
    edge(to_whole).to = part;
  }
  return part;
}

// All ends of the text that are short enough occur once more.
void SuffixAutomaton::count_ends(int32_t token) {
  tail_ = shortened(tail_, counted_ - 1);
  for (int32_t state = tail_.state; state >= 0; state = at(state).link)
    move_to_front(edge_of(state, token));
  tail_ = {edge(edge_of(tail_.state, token)).to, tail_.length + 1};
  for (int32_t state = tail_.state; state > 0; state = at(state).link) ++at(state).count;
}

SuffixAutomaton::Match SuffixAutomaton::shortened(Match match, int most) const {
  match.length = std::min(match.length, most);
  while (match.state > 0 && match.length <= at(at(match.state).link).length)
    match.state = at(match.state).link;
  return match;
}

SuffixAutomaton::Match SuffixAutomaton::follow(Match match, int32_t token, int most) const {
  match = shortened(match, match.length);
  int32_t e = edge_of(match.state, token);
  while (e < 0 && match.state > 0) {
    match.state = at(match.state).link;
    match.length = at(match.state).length;
    e = edge_of(match.state, token);
  }
  if (e < 0) return {};
  return shortened({edge(e).to, match.length + 1}, most);
}

size_t SuffixAutomaton::slot_of(int32_t state, int32_t token) const {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32 |
                       static_cast<uint64_t>(static_cast<uint32_t>(token));
  // Fibonacci hashing of the key, folded so that the token reaches the upper bits as the state.
  const uint64_t hash = (key ^ (key >> 29)) * 0x9E3779B97F4A7C15u;
  auto slot = static_cast<size_t>(hash >> shift_);
  while (slots_[slot] >= 0) {
    const Edge& there = edge(slots_[slot]);
    if (there.from == state && there.token == token) break;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

int32_t SuffixAutomaton::edge_of(int32_t state, int32_t token) const {
  return slots_[slot_of(state, token)];
}

int32_t SuffixAutomaton::add_state(const State& state) {
  states_.push_back(state);
  return static_cast<int32_t>(states_.size()) - 1;
}

void SuffixAutomaton::add_edge(int32_t from, int32_t token, int32_t to) {
  if (2 * (edges_.size() + 1) > slots_.size()) make_slots(edges_.size() + 1);
  const auto e = static_cast<int32_t>(edges_.size());
  slots_[slot_of(from, token)] = e;
  edges_.push_back({from, token, to, -1, -1});
  link_first(e);
}

void SuffixAutomaton::link_first(int32_t e) {
  State& state = at(edge(e).from);
  edge(e).previous = -1;
  edge(e).next = state.edges;
  if (state.edges >= 0) edge(state.edges).previous = e;
  state.edges = e;
}

void SuffixAutomaton::move_to_front(int32_t e) {
  const Edge moved = edge(e);
  if (moved.previous < 0) return;
  edge(moved.previous).next = moved.next;
  if (moved.next >= 0) edge(moved.next).previous = moved.previous;
  link_first(e);
}

void SuffixAutomaton::make_slots(size_t edges) {
  const size_t n = std::bit_ceil(std::max(2 * edges, kFewestSlots));
  slots_.assign(n, -1);
  shift_ = 64 - std::countr_zero(n);
  for (size_t e = 0; e < edges_.size(); ++e)
    slots_[slot_of(edges_[e].from, edges_[e].token)] = static_cast<int32_t>(e);
}

}  // namespace evalrun::methods
