// What reports need of the turns, steps and draft nodes of a generation, added up when it is
// stored: a report of 10^6 generations reads as many short blobs then, and not 2 x 10^7 rows. It is
// the column generation.tally. NULL there says that nobody counted, and that the rows must be read.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "results/records.h"

namespace evalrun::results {

// Sums over turns, in this order: tokens, tokens decoded by steps (all but each turn's first),
// steps, drafted, drafted_depth, accepted, emitted, target_forwards, rows, undrafted, draft_ns,
// verify_ns, decode_ns, prefill_ns, draft_prefill_ns, turns that a stop token ended, prefill_ns of
// the first turn.
inline constexpr size_t kTallySums = 17;
using TallySums = std::array<int64_t, kTallySums>;

// What is added up of one turn.
struct TallyTurn {
  int64_t n_tokens = 0, n_steps = 0, drafted = 0, drafted_depth = 0, accepted = 0, emitted = 0;
  int64_t target_forwards = 0, rows = 0, undrafted = 0;
  int64_t draft_ns = 0, verify_ns = 0, decode_ns = 0, prefill_ns = 0, draft_prefill_ns = 0;
  bool first = false, stop_token = false;
};

// Sums over its steps; of a server's answer what the server counted, and 0 where it does not say.
TallyTurn counters_of(const TurnRecord& turn);

struct Tally {
  TallySums sums = {};
  // By drafted depth and outcome: how many steps. The outcome is 2 * accepted, and 1 more where the
  // stop rule cut the step (emitted <= accepted).
  std::map<std::pair<int64_t, int64_t>, int64_t> steps;
  // By depth and rank (NodeCount): tested, accepted.
  std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>> nodes;

  void add(const TallyTurn& turn);
  void add_step(int64_t drafted_depth, int64_t accepted, int64_t emitted);
  void add_node(int64_t depth, int64_t rank, int64_t tested, int64_t accepted);
};

Tally tally_of(const std::vector<TurnRecord>& turns);

// Numbers of 7 bits a byte, lowest first, the top bit set where more follow (LEB128): the layout's
// number, the sums, how many kinds of steps and (depth, outcome, steps) of each, how many places of
// nodes and (depth, rank, tested, accepted) of each. Nothing where a number is negative.
std::optional<std::string> packed(const Tally& tally);

inline constexpr int64_t kTallyLayout = 1;

// Reads numbers of a blob one by one. Past the end, and where a number has more than 63 bits, they
// are 0 and ok() is false from then on.
class TallyNumbers {
 public:
  explicit TallyNumbers(std::string_view bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}
  int64_t next() {
    uint64_t number = 0;
    for (int shift = 0; shift < 63 && at_ != end_; shift += 7) {
      const auto byte = static_cast<uint8_t>(*at_++);
      number |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return static_cast<int64_t>(number);
    }
    ok_ = false;
    return 0;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == end_; }

 private:
  const char* at_;
  const char* end_;
  bool ok_ = true;
};

// The sums alone. False: the blob is damaged, or was written by somebody who knows more.
inline bool unpack_sums(TallyNumbers& numbers, TallySums& sums) {
  if (numbers.next() != kTallyLayout) return false;
  for (int64_t& sum : sums) sum = numbers.next();
  return numbers.ok();
}
inline bool unpack_sums(std::string_view bytes, TallySums& sums) {
  TallyNumbers numbers(bytes);
  return unpack_sums(numbers, sums);
}

// All of it: `step` gets (depth, outcome, steps), `node` gets (depth, rank, tested, accepted), in
// ascending order. False as above; they may have been called all the same.
template <typename Step, typename Node>
bool unpack(std::string_view bytes, TallySums& sums, const Step& step, const Node& node) {
  TallyNumbers numbers(bytes);
  if (!unpack_sums(numbers, sums)) return false;
  for (int64_t left = numbers.next(); left > 0 && numbers.ok(); --left) {
    const int64_t depth = numbers.next(), outcome = numbers.next(), steps = numbers.next();
    if (numbers.ok()) step(depth, outcome, steps);
  }
  for (int64_t left = numbers.next(); left > 0 && numbers.ok(); --left) {
    const int64_t depth = numbers.next(), rank = numbers.next();
    const int64_t tested = numbers.next(), accepted = numbers.next();
    if (numbers.ok()) node(depth, rank, tested, accepted);
  }
  return numbers.ok() && numbers.at_end();
}

}  // namespace evalrun::results
