// The sequences of a session: how long each is, under which skip set its last tokens were
// committed, and the blocks of the caches that it has.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache_blocks.h"
#include "engine/forward_plan.h"
#include "engine/rows.h"
#include "engine/session_options.h"

namespace evalrun::engine {

struct Sequence {
  int length = 0;
  // Rows committed under a skip set lack K/V of the skipped layers: only a forward with the same
  // skip set may see them. skip_from = first such position, or length when there is none.
  int skip_from = 0;
  SkipSet skip;
  std::vector<int32_t> tokens;  // kept only without a KV cache, to recompute from
};

class Sequences {
 public:
  explicit Sequences(const SessionOptions& options);
  // Room for all lists there can be, once it is known that the session's memory is there.
  void reserve() { blocks_.reserve(max_tokens_); }

  int size() const { return static_cast<int>(sequences_.size()); }
  Sequence& at(int s);  // InternalError when there is none
  const Sequence& at(int s) const { return const_cast<Sequences*>(this)->at(s); }
  // Of all; valid until the next call.
  std::span<const int> lengths();
  const CacheBlocks& blocks() const { return blocks_; }

  // How many tokens more one sequence could hold if no other grew.
  int free_tokens(int sequence) const;
  // InternalError when a sequence is named twice; usage_error when the caches have no room for all
  // of them to be so long. Then nothing was changed.
  void make_room(std::span<const SequenceLength> wanted);
  // InternalError when rows of the plan cannot follow a sequence as this path.
  void check_path(const ForwardPlan& plan, std::span<const int> path, int sequence) const;

  void rewind(int length, int sequence);
  // After make_room() for it.
  void fork(int from, int to);

 private:
  const int max_tokens_;
  std::vector<Sequence> sequences_;
  CacheBlocks blocks_;
  std::vector<int> lengths_;
  std::vector<bool> named_;
};

}  // namespace evalrun::engine
