#include "engine/sequences.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/cache_memory.h"

namespace evalrun::engine {

Sequences::Sequences(const SessionOptions& o)
    : max_tokens_(o.max_tokens),
      sequences_(static_cast<size_t>(o.n_sequences)),
      blocks_(pool_blocks(o), o.n_sequences),
      lengths_(sequences_.size()),
      named_(sequences_.size()) {}

Sequence& Sequences::at(int s) {
  EVALRUN_CHECK(s >= 0 && static_cast<size_t>(s) < sequences_.size(), "sequence {} of {}", s,
                sequences_.size());
  return sequences_[static_cast<size_t>(s)];
}

std::span<const int> Sequences::lengths() {
  for (size_t i = 0; i < sequences_.size(); ++i) lengths_[i] = sequences_[i].length;
  return lengths_;
}

int Sequences::free_tokens(int sequence) const {
  const int length = at(sequence).length;
  const int64_t blocks = static_cast<int64_t>(blocks_.of(sequence).size()) + blocks_.n_free();
  return static_cast<int>(std::min<int64_t>(max_tokens_, blocks * kCacheBlock)) - length;
}

void Sequences::make_room(std::span<const SequenceLength> wanted) {
  std::fill(named_.begin(), named_.end(), false);
  for (const SequenceLength& w : wanted) {
    (void)at(w.sequence);
    EVALRUN_CHECK(!named_[static_cast<size_t>(w.sequence)], "sequence {} is named twice",
                  w.sequence);
    named_[static_cast<size_t>(w.sequence)] = true;
  }
  const int64_t lacking = blocks_.lacking(wanted), free = blocks_.n_free();
  if (lacking > free)
    throw base::usage_error(
        fmt::format("tokens do not fit: they take {} more positions of the KV cache, {} of the {} "
                    "that all sequences share are free (in blocks of {})",
                    lacking * kCacheBlock, free * kCacheBlock, blocks_.n_blocks() * kCacheBlock,
                    kCacheBlock),
        "rewind sequences that have ended, or create the session with more pool_tokens");
  blocks_.take(wanted);
}

void Sequences::check_path(const ForwardPlan& plan, std::span<const int> path, int sequence) const {
  const Sequence& s = at(sequence);
  for (size_t j = 0; j < path.size(); ++j) {
    EVALRUN_CHECK(path[j] >= 0 && static_cast<size_t>(path[j]) < plan.all_rows().size(),
                  "row {} is not in the forward", path[j]);
    const PlanRow& r = plan.all_rows()[static_cast<size_t>(path[j])];
    EVALRUN_CHECK(r.sequence == sequence, "row {} belongs to sequence {}", path[j], r.sequence);
    EVALRUN_CHECK(r.position == s.length + static_cast<int>(j), "row {} has position {}, not {}",
                  path[j], r.position, s.length + static_cast<int>(j));
    // Seeing exactly the path: otherwise its keys and values depend on rows that are dropped.
    EVALRUN_CHECK(r.in_block || r.visible_count == static_cast<int>(j) + 1,
                  "row {} sees {} rows, the path has {}", path[j], r.visible_count, j + 1);
    if (j > 0) {
      const auto seen = plan.visible(r);
      EVALRUN_CHECK(std::find(seen.begin(), seen.end(), path[j - 1]) != seen.end(),
                    "row {} does not see row {}", path[j], path[j - 1]);
    }
  }
}

void Sequences::rewind(int length, int sequence) {
  Sequence& s = at(sequence);
  EVALRUN_CHECK(length >= 0 && length <= s.length, "rewind to {} of {}", length, s.length);
  s.length = length;
  s.skip_from = std::min(s.skip_from, length);
  if (s.tokens.size() > static_cast<size_t>(length)) s.tokens.resize(static_cast<size_t>(length));
  blocks_.give_back(sequence, length);
}

void Sequences::fork(int from, int to) {
  at(to) = at(from);
  blocks_.give_back(to, at(to).length);
}

}  // namespace evalrun::engine
