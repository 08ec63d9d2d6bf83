// n-grams of an answer and what the target said after them, with probabilities: the memory of STAND
// (methods/lookup/stand.cpp). An n-gram that comes again keeps the mean of what was said.
//
// Nothing is allocated by add() and find() for as many calls of add() as start() was promised.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace evalrun::methods {

class LogitGrams {
 public:
  static constexpr int kLongest = 8;
  struct Candidate {
    int32_t token;
    float probability;
  };
  // n-grams of 1 to `longest` tokens, each with its `k` likeliest candidates.
  LogitGrams(int longest, int k);

  void start(int adds);  // forgets everything
  // Of so many adds; a table of slots is at least a quarter full when all are there.
  static double bytes_per_add(int longest, int k) {
    return 1.0 * longest *
           (4 * sizeof(int32_t) + sizeof(Gram) + static_cast<size_t>(k) * sizeof(Candidate));
  }
  // What the target said after `context`: counts for the n-grams of all lengths at its end.
  // Candidates without a probability are left out. A candidate that an n-gram does not have counts
  // as 0 there, and what has no place among its k is forgotten.
  void add(std::span<const int32_t> context, std::span<const Candidate> said);
  // Of the longest n-gram at the end of `context` that was seen: the likeliest first, ties by id.
  // Empty where none was. Valid until the next add().
  std::span<const Candidate> find(std::span<const int32_t> context) const;

 private:
  struct Gram {
    std::array<int32_t, kLongest> key;
    int n = 0;
    int seen = 0;
    int candidates = 0;
  };
  // Slot that holds the gram, or the free one where it belongs.
  size_t slot_of(std::span<const int32_t> key) const;
  void mix(Gram& gram, Candidate* kept, std::span<const Candidate> said);

  const int longest_;
  const size_t k_;
  std::vector<int32_t> slots_;  // -> grams_, -1 = free; size is a power of two
  std::vector<Gram> grams_;
  std::vector<Candidate> kept_;   // [gram, k]
  std::vector<Candidate> mixed_;  // of one add()
};

}  // namespace evalrun::methods
