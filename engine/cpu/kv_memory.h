// Keys and values of a session on the CPU: the cache of its sequences, one pool of blocks a layer;
// the rows of the forward under way; the prefix bank.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache_blocks.h"
#include "engine/cpu/kv_store.h"
#include "engine/forward_plan.h"
#include "engine/model/config.h"
#include "engine/rows.h"

namespace evalrun::engine::cpu {

template <typename T>
class KvMemory {
 public:
  // A cache of so many positions, in `blocks`. `touched`: it takes its memory now; otherwise as it
  // is written. `spaces`: of Workspace; each has rows of its own.
  KvMemory(const ModelConfig& config, const CacheBlocks& blocks, int positions, bool touched,
           size_t spaces);

  // Of all sequences, in their blocks().
  const KvStore<T>& cache(int layer) const { return cache_[static_cast<size_t>(layer)]; }
  const CacheBlocks& blocks() const { return blocks_; }
  KvStore<T>& rows(size_t space, int layer) { return rows_[space][static_cast<size_t>(layer)]; }
  const KvStore<T>& prefix(int layer) const { return prefix_[static_cast<size_t>(layer)]; }

  // Room for the rows of a forward, in the first `spaces`; keeps the rows that they hold.
  void room_for_rows(size_t spaces, int rows);
  void load_prefix(const PrefixBank& bank);
  // Rows of the last forward to the blocks of their sequences, in layers [begin, end): threads may
  // take layers each.
  void commit(std::span<const CommitRow> rows, int begin, int end);
  int layers() const { return static_cast<int>(cache_.size()); }
  void copy_sequence(int from, int to, int length);
  void read(int layer, int position, int sequence, std::span<float> k, std::span<float> v) const;

  size_t bytes_per_token() const { return cache_.size() * cache_[0].bytes_per_position(); }
  size_t bytes() const { return cache_.size() * cache_[0].bytes(); }
  size_t row_bytes() const {
    size_t bytes = 0;
    for (const std::vector<KvStore<T>>& space : rows_)
      for (const KvStore<T>& store : space) bytes += store.bytes();
    return bytes;
  }

 private:
  const int kv_heads_, head_dim_;
  const CacheBlocks& blocks_;
  std::vector<KvStore<T>> cache_;              // [layer]
  std::vector<std::vector<KvStore<T>>> rows_;  // [space][layer]
  std::vector<KvStore<T>> prefix_;             // [layer]
  uint64_t prefix_id_ = 0;                     // of what is in there
};

template <typename T>
KvMemory<T>::KvMemory(const ModelConfig& config, const CacheBlocks& blocks, int positions,
                      bool touched, size_t spaces)
    : kv_heads_(config.n_kv_heads), head_dim_(config.head_dim), blocks_(blocks) {
  const auto layers = static_cast<size_t>(config.n_layers);
  cache_.resize(layers);
  for (KvStore<T>& store : cache_) {
    store.configure(kv_heads_, head_dim_);
    store.reserve(positions, touched);
  }
  rows_.resize(spaces);
  for (std::vector<KvStore<T>>& space : rows_) {
    space.resize(layers);
    for (KvStore<T>& store : space) store.configure(kv_heads_, head_dim_);
  }
  prefix_.resize(layers);
}

template <typename T>
void KvMemory<T>::room_for_rows(size_t spaces, int rows) {
  for (size_t i = 0; i < spaces; ++i)
    for (KvStore<T>& store : rows_[i]) store.grow(rows);
}

template <typename T>
void KvMemory<T>::load_prefix(const PrefixBank& bank) {
  if (bank.id != 0 && bank.id == prefix_id_) return;
  prefix_id_ = bank.id;
  const int heads = bank.heads == 0 ? kv_heads_ : bank.heads;
  for (size_t l = 0; l < prefix_.size(); ++l) {
    prefix_[l] = KvStore<T>();  // another bank may have had other heads
    prefix_[l].configure(heads, head_dim_);
    prefix_[l].reserve(bank.length);
    for (int p = 0; p < bank.length; ++p) {
      const size_t at = static_cast<size_t>(p) * static_cast<size_t>(heads * head_dim_);
      prefix_[l].write(p, bank.k[l].data() + at, bank.v[l].data() + at);
    }
  }
}

// Runs of neighbouring rows whose positions are neighbours in the pool, too.
template <typename T>
void KvMemory<T>::commit(std::span<const CommitRow> rows, int begin, int end) {
  for (size_t j = 0; j < rows.size();) {
    const int row = rows[j].row, place = blocks_.place(rows[j].sequence, rows[j].position);
    int run = 1;
    for (size_t next = j + 1;
         next < rows.size() && rows[next].row == row + run &&
         blocks_.place(rows[next].sequence, rows[next].position) == place + run;
         ++next)
      ++run;
    for (auto l = static_cast<size_t>(begin); l < static_cast<size_t>(end); ++l)
      cache_[l].copy_positions(rows_[0][l], row, place, run);
    j += static_cast<size_t>(run);
  }
}

template <typename T>
void KvMemory<T>::copy_sequence(int from, int to, int length) {
  for (KvStore<T>& store : cache_)
    for (int first = 0; first < length; first += kCacheBlock)
      store.copy_positions(store, blocks_.place(from, first), blocks_.place(to, first),
                           std::min(kCacheBlock, length - first));
}

template <typename T>
void KvMemory<T>::read(int layer, int position, int sequence, std::span<float> k,
                       std::span<float> v) const {
  cache(layer).read(blocks_.place(sequence, position), k.data(), v.data());
}

}  // namespace evalrun::engine::cpu
