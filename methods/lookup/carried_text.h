// Answers that are kept from prompt to prompt, in two suffix automata: the newest half of what may
// be kept, and the half before, which is dropped when the newest is full. So there are at most
// `capacity` tokens at any time, and at least the newest half of them once so many came.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "methods/lookup/carried_state.h"
#include "methods/lookup/suffix_automaton.h"
#include "methods/method.h"

namespace evalrun::methods {

class CarriedText {
 public:
  static constexpr int kParts = 2;
  // `capacity`: tokens, 4 or more; `counted` as SuffixAutomaton.
  CarriedText(int counted, size_t capacity);

  // An answer. Of one longer than half of the capacity its end is kept.
  void add(std::span<const int32_t> text);
  const SuffixAutomaton& part(int i) const { return parts_[static_cast<size_t>(i)]; }
  // Grows when a part was dropped: matches made before mean nothing then.
  uint64_t drops() const { return drops_; }
  size_t tokens() const { return parts_[0].tokens() + parts_[1].tokens(); }
  size_t bytes() const { return parts_[0].bytes() + parts_[1].bytes(); }
  uint64_t growths() const { return growths_; }  // how often there was too little room

 private:
  void make_room(size_t tokens);

  const size_t half_;
  std::array<SuffixAutomaton, kParts> parts_;
  std::array<size_t, kParts> room_ = {};  // tokens that a part has memory for
  int newest_ = 0;
  uint64_t drops_ = 0, growths_ = 0;
};

// One slot's view of it: the answer that is being given, and where its last tokens stand in earlier
// ones. With state=cold there is nothing.
class EarlierAnswers {
 public:
  // `longest`: tokens of a match at most.
  EarlierAnswers(CarriedState state, int counted, int capacity, int longest);
  EarlierAnswers another() const;

  // The answer before goes in. `max_new` tokens at most will follow() the prompt.
  void start(std::span<const int32_t> prompt, int max_new);
  // `sequence` as Drafter::draft().
  void follow(std::span<const int32_t> sequence);

  void add_kept(GrownMemory& grown) const;
  int parts() const { return store_ == nullptr ? 0 : CarriedText::kParts; }
  const SuffixAutomaton& part(int i) const { return store_->part(i); }
  SuffixAutomaton::Match match(int i) const { return matches_[static_cast<size_t>(i)]; }

 private:
  static constexpr size_t kReadAnew = 64;  // last tokens, where a match is not gone on from

  const CarriedState state_;
  const int counted_, capacity_, longest_;
  std::shared_ptr<CarriedText> store_;
  std::array<SuffixAutomaton::Match, CarriedText::kParts> matches_;
  std::vector<int32_t> answer_;
  size_t read_ = 0;     // tokens of the sequence that were followed
  uint64_t drops_ = 0;  // of the store, when they were
};

}  // namespace evalrun::methods
