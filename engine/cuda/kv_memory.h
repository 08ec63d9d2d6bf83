// Keys and values of a session on the device: the cache of its sequences, the rows of the forward
// under way, the prefix bank. Layouts: engine/cuda/kernels/key_values.h.
#pragma once
#include <span>

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/forward_plan.h"
#include "engine/model/config.h"
#include "engine/session.h"

namespace evalrun::engine::cuda {

// What a session keeps keys and values as; `bf16`: the products of its layers take bfloat16.
KvType kv_type_of(const SessionOptions& options, bool bf16);

class KvMemory {
 public:
  // head_stride: what heads are padded to.
  KvMemory(const ModelConfig& config, int n_sequences, int max_tokens, KvType type,
           int head_stride);
  static size_t bytes_for(const ModelConfig& config, int n_sequences, int max_tokens, KvType type,
                          int head_stride);
  KvType type() const { return type_; }

  KeyValues cache(int layer) const;
  KeyValues rows(int layer) const;
  KeyValues prefix(int layer) const;
  // From one layer's keys to the next's; of values the same.
  size_t cache_layer_bytes() const;
  size_t rows_layer_bytes() const;
  int prefix_heads() const { return prefix_heads_; }
  size_t bytes_per_token() const;
  size_t bytes() const { return cache_k_.bytes() + cache_v_.bytes(); }
  size_t row_bytes() const { return rows_k_.bytes() + rows_v_.bytes(); }

  // Both return true when memory moved. `stream` has run when rows move or a bank is loaded.
  bool room_for_rows(int rows, bool keep, cudaStream_t stream);
  bool load_prefix(const PrefixBank& bank, cudaStream_t stream);

  // `rows`: n of the forward, in device memory, to their sequences.
  void commit(const CommitRow* rows, int n, cudaStream_t stream) const;
  void copy_sequence(int from, int to, int length, cudaStream_t stream) const;
  void read(int layer, int position, int sequence, std::span<float> k, std::span<float> v) const;

 private:
  size_t value_bytes() const { return type_ == KvType::kF32 ? 4 : type_ == KvType::kBf16 ? 2 : 1; }
  size_t line_bytes() const { return kv_line_bytes(type_, stride_); }
  bool values_by_dimension() const { return type_ != KvType::kF32; }

  const int n_layers_, kv_heads_, head_dim_, n_sequences_;
  const KvType type_;
  const int stride_, capacity_;
  DeviceBuffer cache_k_, cache_v_, rows_k_, rows_v_, prefix_k_, prefix_v_;
  int row_capacity_ = 0;
  uint64_t prefix_id_ = 0;
  int prefix_heads_ = 0, prefix_capacity_ = 0;
};

}  // namespace evalrun::engine::cuda
