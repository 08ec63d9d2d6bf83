// A model on a device: its matrices (shared with other sessions, MatrixStore), its small vectors
// and rotary tables, and the low-rank updates of adapters.
#pragma once
#include <array>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/cuda/kernels/device_matrix.h"
#include "engine/model/low_rank.h"
#include "engine/model/model.h"

namespace evalrun::engine::cuda {

using MatrixPtr = std::shared_ptr<const DeviceMatrix>;

struct DeviceLayer {
  JointMatrix qkv, o, gate_up, down;  // gate and up in turns, where they are one
  // Float32 in device memory; nullptr where the model has none. Biases are in the order of the
  // matrix's outputs, padding included.
  const float *attn_norm, *embed_norm, *q_norm, *k_norm, *ffn_norm;
  const float *qkv_bias, *o_bias, *gate_up_bias, *down_bias;
};

class DeviceModel {
 public:
  DeviceModel(const Model& model, int device, int max_tokens, cudaStream_t stream);

  const DeviceLayer& layer(int l) const { return layers_[static_cast<size_t>(l)]; }
  std::span<const DeviceLayer> layers() const { return layers_; }
  const DeviceMatrix& head() const { return *head_; }
  const DeviceMatrix& embedding() const { return *embedding_; }
  // Of the layers' matrices: most outputs, padding included; storages; bytes of the largest that a
  // dense library has to be given unpacked.
  int widest() const { return widest_; }
  const std::vector<WeightStorage>& storages() const { return storages_; }
  size_t most_unpacked() const { return most_unpacked_; }
  const float* final_norm() const { return final_norm_; }
  const float* cos() const { return cos_; }  // [max_tokens][head_dim / 2]
  const float* sin() const { return sin_; }

  // Device memory that a model still needs, including the piece that weights are repacked from.
  static size_t missing_bytes(const Model& model, int device);

 private:
  // All vectors, in sequence.
  size_t add(std::span<const float> values);
  std::optional<size_t> add_if(const std::vector<float>& values);
  std::optional<size_t> add_bias(const JointMatrix& m,
                                 std::initializer_list<const std::vector<float>*> parts);
  void look_at(const JointMatrix& m);

  std::vector<DeviceLayer> layers_;
  MatrixPtr head_, embedding_;
  int widest_ = 0;
  std::vector<WeightStorage> storages_;
  size_t most_unpacked_ = 0;
  const float *final_norm_ = nullptr, *cos_ = nullptr, *sin_ = nullptr;
  std::vector<float> host_;
  DeviceBuffer vectors_;
};

// Low-rank updates of one adapter, layer by layer: for each of a layer's products those of its
// parts, whose A are one matrix, as they read the same inputs.
struct DeviceLowRank {
  struct Part {
    MatrixPtr b;  // nullptr: none
    float scale = 1;
    int inner_at = 0, rank = 0;  // its A's outputs in `a`
  };
  struct Group {
    MatrixPtr a;  // nullptr: no part has one
    std::vector<Part> parts;
  };
  enum { kQkv, kO, kGateUp, kDown, kCount };
  std::vector<std::array<Group, kCount>> layers;
  int widest = 0;                               // most outputs of an A; padding included
  WeightStorage storage = WeightStorage::kF32;  // of all A
  std::weak_ptr<const std::byte> host;          // the weights this was copied from
  int64_t id = 0;                               // never given twice
};

class LowRankStore {
 public:
  // The adapter's factors on the device. Copies them the first time.
  const DeviceLowRank& get(const LowRankDelta& delta, int device, cudaStream_t stream);

 private:
  std::map<const std::byte*, DeviceLowRank> entries_;
  int64_t next_id_ = 0;
};

}  // namespace evalrun::engine::cuda
