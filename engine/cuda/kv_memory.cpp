#include "engine/cuda/kv_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/cuda/kernels/device_matrix.h"
#include "engine/cuda/kernels/row_ops.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda {

size_t KvMemory::bytes_for(const ModelConfig& c, int n_sequences, int max_tokens, bool bf16,
                           int head_stride) {
  return 2 * static_cast<size_t>(c.n_layers) * static_cast<size_t>(n_sequences) *
         static_cast<size_t>(c.n_kv_heads) * static_cast<size_t>(padded_to(max_tokens, kChunk)) *
         static_cast<size_t>(head_stride) * (bf16 ? 2 : 4);
}

KvMemory::KvMemory(const ModelConfig& c, int n_sequences, int max_tokens, bool bf16,
                   int head_stride)
    : n_layers_(c.n_layers),
      kv_heads_(c.n_kv_heads),
      head_dim_(c.head_dim),
      n_sequences_(n_sequences),
      bf16_(bf16),
      stride_(head_stride),
      capacity_(padded_to(max_tokens, kChunk)) {
  const size_t half = bytes_for(c, n_sequences, max_tokens, bf16, head_stride) / 2;
  cache_k_ = DeviceBuffer(half);
  cache_v_ = DeviceBuffer(half);
}

namespace {
KeyValues at(const DeviceBuffer& k, const DeviceBuffer& v, size_t bytes, int capacity) {
  return {k.as<unsigned char>() + bytes, v.as<unsigned char>() + bytes, capacity};
}
}  // namespace

KeyValues KvMemory::cache(int layer) const {
  const size_t size = static_cast<size_t>(n_sequences_) * static_cast<size_t>(kv_heads_) *
                      static_cast<size_t>(capacity_) * line_bytes();
  return at(cache_k_, cache_v_, static_cast<size_t>(layer) * size, capacity_);
}
KeyValues KvMemory::rows(int layer) const {
  const size_t size =
      static_cast<size_t>(kv_heads_) * static_cast<size_t>(row_capacity_) * line_bytes();
  return at(rows_k_, rows_v_, static_cast<size_t>(layer) * size, row_capacity_);
}
KeyValues KvMemory::prefix(int layer) const {
  const size_t size =
      static_cast<size_t>(prefix_heads_) * static_cast<size_t>(prefix_capacity_) * line_bytes();
  return at(prefix_k_, prefix_v_, static_cast<size_t>(layer) * size, prefix_capacity_);
}
size_t KvMemory::bytes_per_token() const {
  return static_cast<size_t>(n_layers_) * 2 * static_cast<size_t>(kv_heads_) * line_bytes();
}

bool KvMemory::room_for_rows(int rows, bool keep, cudaStream_t stream) {
  if (rows <= row_capacity_) return false;
  int larger = 64;
  while (larger < rows) larger *= 2;
  const size_t lines = static_cast<size_t>(n_layers_) * static_cast<size_t>(kv_heads_);
  const size_t line = static_cast<size_t>(larger) * line_bytes();
  DeviceBuffer k(lines * line), v(lines * line);
  const WaitOnError before_they_go(stream);
  if (keep) {
    const size_t held = static_cast<size_t>(row_capacity_) * line_bytes();
    EVALRUN_CUDA(cudaMemcpy2DAsync(k.as<void>(), line, rows_k_.as<void>(), held, held, lines,
                                   cudaMemcpyDeviceToDevice, stream));
    EVALRUN_CUDA(cudaMemcpy2DAsync(v.as<void>(), line, rows_v_.as<void>(), held, held, lines,
                                   cudaMemcpyDeviceToDevice, stream));
  }
  EVALRUN_CUDA(cudaStreamSynchronize(stream));  // a commit may still read the old ones
  rows_k_ = std::move(k), rows_v_ = std::move(v);
  row_capacity_ = larger;
  return true;
}

bool KvMemory::load_prefix(const PrefixBank& bank, cudaStream_t stream) {
  if (bank.id != 0 && bank.id == prefix_id_) return false;
  prefix_id_ = 0;  // until it is copied
  prefix_heads_ = bank.heads == 0 ? kv_heads_ : bank.heads;
  prefix_capacity_ = padded_to(std::max(bank.length, 1), kChunk);
  const auto stride = static_cast<size_t>(stride_), hd = static_cast<size_t>(head_dim_),
             capacity = static_cast<size_t>(prefix_capacity_),
             heads = static_cast<size_t>(prefix_heads_);
  const size_t per_head = capacity * stride;
  const size_t size = static_cast<size_t>(n_layers_) * heads * per_head * value_bytes();
  std::vector<unsigned char> k(size), v(size);
  const auto put = [&](std::vector<unsigned char>& to, size_t index, float x) {
    if (bf16_) {
      const uint16_t bits = float_to_bfloat16(x);
      std::memcpy(&to[index * 2], &bits, 2);
    } else {
      std::memcpy(&to[index * 4], &x, 4);
    }
  };
  for (size_t l = 0; l < static_cast<size_t>(n_layers_); ++l)
    for (size_t p = 0; p < static_cast<size_t>(bank.length); ++p)
      for (size_t h = 0; h < heads; ++h)
        for (size_t d = 0; d < hd; ++d) {
          const size_t from = (p * heads + h) * hd + d, head = (l * heads + h) * per_head;
          put(k, head + p * stride + d, bank.k[l][from]);
          put(v, bf16_ ? head + d * capacity + p : head + p * stride + d, bank.v[l][from]);
        }
  EVALRUN_CUDA(cudaStreamSynchronize(stream));  // the last forward may still read the old one
  const bool k_moved = prefix_k_.ensure(size), v_moved = prefix_v_.ensure(size);
  prefix_k_.upload(k.data(), size);
  prefix_v_.upload(v.data(), size);
  prefix_id_ = bank.id;
  return k_moved || v_moved;
}

void KvMemory::commit(const CommitRow* list, int n, cudaStream_t stream) const {
  CommitJob job;
  job.rows = list, job.n_sequences = n_sequences_;
  job.step = rows(0), job.cache = cache(0);
  job.kv_heads = kv_heads_, job.head_dim = head_dim_, job.head_stride = stride_;
  job.bf16 = bf16_;
  commit_rows(job, n, n_layers_, stream);
}

void KvMemory::copy_sequence(int from, int to, int length, cudaStream_t stream) const {
  if (length == 0) return;
  const auto copy = [&](void* base, size_t lines, size_t bytes, size_t pitch) {
    auto* b = static_cast<unsigned char*>(base);
    EVALRUN_CUDA(cudaMemcpy2DAsync(b + static_cast<size_t>(to) * lines * pitch, pitch,
                                   b + static_cast<size_t>(from) * lines * pitch, pitch, bytes,
                                   lines, cudaMemcpyDeviceToDevice, stream));
  };
  const auto heads = static_cast<size_t>(kv_heads_), tokens = static_cast<size_t>(length),
             capacity = static_cast<size_t>(capacity_);
  for (int l = 0; l < n_layers_; ++l) {
    const KeyValues kv = cache(l);
    copy(kv.k, heads, tokens * line_bytes(), capacity * line_bytes());
    if (bf16_)
      copy(kv.v, heads * static_cast<size_t>(stride_), tokens * 2, capacity * 2);
    else
      copy(kv.v, heads, tokens * line_bytes(), capacity * line_bytes());
  }
}

void KvMemory::read(int layer, int position, int sequence, std::span<float> k,
                    std::span<float> v) const {
  const KeyValues kv = cache(layer);
  const auto hd = static_cast<size_t>(head_dim_), stride = static_cast<size_t>(stride_),
             capacity = static_cast<size_t>(capacity_), at_position = static_cast<size_t>(position);
  std::vector<unsigned char> line(hd * value_bytes());
  for (int h = 0; h < kv_heads_; ++h) {
    const size_t head = static_cast<size_t>(sequence * kv_heads_ + h);
    const auto get = [&](const void* base, bool by_dimension, std::span<float> to) {
      const size_t from = by_dimension ? head * stride * capacity + at_position
                                       : (head * capacity + at_position) * stride;
      const auto* values = static_cast<const unsigned char*>(base) + from * value_bytes();
      if (by_dimension)
        EVALRUN_CUDA(cudaMemcpy2D(line.data(), value_bytes(), values, capacity * value_bytes(),
                                  value_bytes(), hd, cudaMemcpyDeviceToHost));
      else
        EVALRUN_CUDA(cudaMemcpy(line.data(), values, hd * value_bytes(), cudaMemcpyDeviceToHost));
      for (size_t d = 0; d < hd; ++d) {
        float& x = to[static_cast<size_t>(h) * hd + d];
        if (bf16_) {
          uint16_t bits;
          std::memcpy(&bits, &line[d * 2], 2);
          x = bfloat16_to_float(bits);
        } else {
          std::memcpy(&x, &line[d * 4], 4);
        }
      }
    };
    get(kv.k, false, k);
    get(kv.v, bf16_, v);
  }
}

}  // namespace evalrun::engine::cuda
