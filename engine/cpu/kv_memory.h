// Keys and values of a session on the CPU: the cache of its sequences, the rows of the forward
// under way, the prefix bank.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cpu/kv_store.h"
#include "engine/model/config.h"
#include "engine/rows.h"

namespace evalrun::engine::cpu {

template <typename T>
class KvMemory {
 public:
  // `spaces`: of Workspace; each has rows of its own.
  KvMemory(const ModelConfig& config, int n_sequences, int max_tokens, size_t spaces);

  // Of a layer, by sequence.
  const KvStore<T>** cache(int layer) { return pointers_[static_cast<size_t>(layer)].data(); }
  KvStore<T>& rows(size_t space, int layer) { return rows_[space][static_cast<size_t>(layer)]; }
  const KvStore<T>& prefix(int layer) const { return prefix_[static_cast<size_t>(layer)]; }

  // Room for the rows of a forward, in the first `spaces`; keeps the rows that they hold.
  void room_for_rows(size_t spaces, int rows);
  void load_prefix(const PrefixBank& bank);
  // Rows of the last forward to positions first, first + 1, ... of a sequence.
  void commit(std::span<const int> rows, int first, int sequence);
  void copy_sequence(int from, int to, int length);
  void read(int layer, int position, int sequence, std::span<float> k, std::span<float> v) const;

  size_t bytes_per_token() const { return cache_.size() * cache_[0][0].bytes_per_position(); }
  size_t bytes() const { return bytes_of(cache_); }
  size_t row_bytes() const { return bytes_of(rows_); }

 private:
  using Stores = std::vector<std::vector<KvStore<T>>>;
  static size_t bytes_of(const Stores& stores);

  const int kv_heads_, head_dim_;
  Stores cache_;                                          // [layer][sequence]
  std::vector<std::vector<const KvStore<T>*>> pointers_;  // the same
  Stores rows_;                                           // [space][layer]
  std::vector<KvStore<T>> prefix_;                        // [layer]
  uint64_t prefix_id_ = 0;                                // of what is in there
};

template <typename T>
KvMemory<T>::KvMemory(const ModelConfig& config, int n_sequences, int max_tokens, size_t spaces)
    : kv_heads_(config.n_kv_heads), head_dim_(config.head_dim) {
  const auto layers = static_cast<size_t>(config.n_layers);
  cache_.resize(layers);
  pointers_.resize(layers);
  for (size_t l = 0; l < layers; ++l) {
    cache_[l].resize(static_cast<size_t>(n_sequences));
    for (KvStore<T>& store : cache_[l]) {
      store.configure(kv_heads_, head_dim_);
      store.reserve(max_tokens);
      pointers_[l].push_back(&store);
    }
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

template <typename T>
void KvMemory<T>::commit(std::span<const int> rows, int first, int sequence) {
  for (size_t j = 0; j < rows.size();) {
    size_t run = 1;  // of neighbouring rows
    while (j + run < rows.size() && rows[j + run] == rows[j] + static_cast<int>(run)) ++run;
    for (size_t l = 0; l < cache_.size(); ++l)
      cache_[l][static_cast<size_t>(sequence)].copy_positions(
          rows_[0][l], rows[j], first + static_cast<int>(j), static_cast<int>(run));
    j += run;
  }
}

template <typename T>
void KvMemory<T>::copy_sequence(int from, int to, int length) {
  for (auto& layer : cache_)
    layer[static_cast<size_t>(to)].copy_positions(layer[static_cast<size_t>(from)], 0, 0, length);
}

template <typename T>
void KvMemory<T>::read(int layer, int position, int sequence, std::span<float> k,
                       std::span<float> v) const {
  cache_[static_cast<size_t>(layer)][static_cast<size_t>(sequence)].read(position, k.data(),
                                                                         v.data());
}

template <typename T>
size_t KvMemory<T>::bytes_of(const Stores& stores) {
  size_t bytes = 0;
  for (const std::vector<KvStore<T>>& some : stores)
    for (const KvStore<T>& store : some) bytes += store.bytes();
  return bytes;
}

}  // namespace evalrun::engine::cpu
