#include "engine/cuda/kv_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/cuda/kernels/device_matrix.h"
#include "engine/cuda/kernels/row_ops.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda {

KvType kv_type_of(const SessionOptions& o, bool bf16) {
  if (o.kv_dtype == "int8") return KvType::kInt8;
  if (o.kv_dtype == "fp8") return KvType::kFp8;
  return bf16 ? KvType::kBf16 : KvType::kF32;
}

size_t KvMemory::bytes_for(const ModelConfig& c, int n_sequences, int max_tokens, KvType type,
                           int head_stride) {
  return 2 * static_cast<size_t>(c.n_layers) * static_cast<size_t>(n_sequences) *
         static_cast<size_t>(c.n_kv_heads) * static_cast<size_t>(padded_to(max_tokens, kChunk)) *
         kv_line_bytes(type, head_stride);
}

KvMemory::KvMemory(const ModelConfig& c, int n_sequences, int max_tokens, KvType type,
                   int head_stride)
    : n_layers_(c.n_layers),
      kv_heads_(c.n_kv_heads),
      head_dim_(c.head_dim),
      n_sequences_(n_sequences),
      type_(type),
      stride_(head_stride),
      capacity_(padded_to(max_tokens, kChunk)) {
  const size_t half = bytes_for(c, n_sequences, max_tokens, type, head_stride) / 2;
  cache_k_ = DeviceBuffer(half);
  cache_v_ = DeviceBuffer(half);
}

namespace {
KeyValues at(const DeviceBuffer& k, const DeviceBuffer& v, size_t bytes, int capacity) {
  return {k.as<unsigned char>() + bytes, v.as<unsigned char>() + bytes, capacity};
}
}  // namespace

size_t KvMemory::cache_layer_bytes() const {
  return static_cast<size_t>(n_sequences_) * static_cast<size_t>(kv_heads_) *
         static_cast<size_t>(capacity_) * line_bytes();
}
size_t KvMemory::rows_layer_bytes() const {
  return static_cast<size_t>(kv_heads_) * static_cast<size_t>(row_capacity_) * line_bytes();
}
KeyValues KvMemory::cache(int layer) const {
  return at(cache_k_, cache_v_, static_cast<size_t>(layer) * cache_layer_bytes(), capacity_);
}
KeyValues KvMemory::rows(int layer) const {
  return at(rows_k_, rows_v_, static_cast<size_t>(layer) * rows_layer_bytes(), row_capacity_);
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
    const auto held = static_cast<size_t>(row_capacity_), pitch = held * line_bytes();
    const size_t codes = held * static_cast<size_t>(stride_);
    const auto copy = [&](const DeviceBuffer& to, const DeviceBuffer& from, size_t to_at,
                          size_t from_at, size_t bytes) {
      EVALRUN_CUDA(cudaMemcpy2DAsync(to.as<unsigned char>() + to_at, line,
                                     from.as<unsigned char>() + from_at, pitch, bytes, lines,
                                     cudaMemcpyDeviceToDevice, stream));
    };
    for (const auto& [to, from] : {std::pair(&k, &rows_k_), std::pair(&v, &rows_v_)}) {
      if (!in_bytes(type_)) {
        copy(*to, *from, 0, 0, pitch);
        continue;
      }
      copy(*to, *from, 0, 0, codes);
      copy(*to, *from, static_cast<size_t>(larger) * static_cast<size_t>(stride_), codes,
           pitch - codes);  // scales
    }
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
  const auto hd = static_cast<size_t>(head_dim_), capacity = static_cast<size_t>(prefix_capacity_),
             heads = static_cast<size_t>(prefix_heads_);
  const size_t size = static_cast<size_t>(n_layers_) * heads * capacity * line_bytes();
  std::vector<unsigned char> k(size), v(size);
  for (size_t l = 0; l < static_cast<size_t>(n_layers_); ++l)
    for (size_t p = 0; p < static_cast<size_t>(bank.length); ++p)
      for (size_t h = 0; h < heads; ++h) {
        const size_t from = (p * heads + h) * hd;
        HeadPlace place = {type_, l * heads + h, capacity, p, head_dim_, stride_, false};
        put_head(k.data(), place, &bank.k[l][from]);
        place.by_dimension = values_by_dimension();
        put_head(v.data(), place, &bank.v[l][from]);
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
  job.type = type_;
  commit_rows(job, n, n_layers_, stream);
}

void KvMemory::copy_sequence(int from, int to, int length, cudaStream_t stream) const {
  if (length == 0) return;
  const auto heads = static_cast<size_t>(kv_heads_), tokens = static_cast<size_t>(length),
             stride = static_cast<size_t>(stride_), capacity = static_cast<size_t>(capacity_);
  const size_t head_bytes = capacity * line_bytes();
  // `lines` of so many bytes, from `at` on in both.
  const auto copy = [&](void* base, size_t at, size_t lines, size_t bytes, size_t pitch) {
    auto* b = static_cast<unsigned char*>(base) + at;
    const size_t sequence = heads * head_bytes;
    EVALRUN_CUDA(cudaMemcpy2DAsync(b + static_cast<size_t>(to) * sequence, pitch,
                                   b + static_cast<size_t>(from) * sequence, pitch, bytes, lines,
                                   cudaMemcpyDeviceToDevice, stream));
  };
  for (int l = 0; l < n_layers_; ++l) {
    const KeyValues kv = cache(l);
    copy(kv.k, 0, heads, tokens * stride * value_bytes(), head_bytes);
    if (!values_by_dimension()) {
      copy(kv.v, 0, heads, tokens * line_bytes(), head_bytes);
      continue;
    }
    const size_t pitch = capacity * value_bytes();
    if (type_ == KvType::kBf16) {
      copy(kv.v, 0, heads * stride, tokens * value_bytes(), pitch);
      continue;
    }
    for (size_t h = 0; h < heads; ++h) copy(kv.v, h * head_bytes, stride, tokens, pitch);
    for (void* base : {kv.k, kv.v})
      copy(base, byte_scale_at(0, capacity, 0, stride_), heads, tokens * sizeof(float), head_bytes);
  }
}

void KvMemory::read(int layer, int position, int sequence, std::span<float> k,
                    std::span<float> v) const {
  const KeyValues kv = cache(layer);
  const auto hd = static_cast<size_t>(head_dim_), stride = static_cast<size_t>(stride_),
             capacity = static_cast<size_t>(capacity_), at = static_cast<size_t>(position);
  std::vector<unsigned char> line(hd * value_bytes());
  for (int h = 0; h < kv_heads_; ++h) {
    const auto head = static_cast<size_t>(sequence * kv_heads_ + h);
    const auto get = [&](const void* base, bool by_dimension, std::span<float> to) {
      const auto* bytes = static_cast<const unsigned char*>(base);
      const unsigned char* values = bytes + head * capacity * line_bytes() +
                                    (by_dimension ? at : at * stride) * value_bytes();
      if (by_dimension)
        EVALRUN_CUDA(cudaMemcpy2D(line.data(), value_bytes(), values, capacity * value_bytes(),
                                  value_bytes(), hd, cudaMemcpyDeviceToHost));
      else
        EVALRUN_CUDA(cudaMemcpy(line.data(), values, hd * value_bytes(), cudaMemcpyDeviceToHost));
      float scale = 1;
      if (in_bytes(type_))
        EVALRUN_CUDA(cudaMemcpy(&scale, bytes + byte_scale_at(head, capacity, at, stride_),
                                sizeof scale, cudaMemcpyDeviceToHost));
      for (size_t d = 0; d < hd; ++d) {
        float& x = to[static_cast<size_t>(h) * hd + d];
        if (in_bytes(type_)) {
          x = byte_number(type_, line[d]) * scale;
        } else if (type_ == KvType::kBf16) {
          uint16_t bits;
          std::memcpy(&bits, &line[d * 2], 2);
          x = bfloat16_to_float(bits);
        } else {
          std::memcpy(&x, &line[d * 4], 4);
        }
      }
    };
    get(kv.k, false, k);
    get(kv.v, values_by_dimension(), v);
  }
}

}  // namespace evalrun::engine::cuda
