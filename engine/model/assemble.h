// The common part of both loaders: from named tensors in a mapping to weights in a format's
// storages.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/formats/dtype.h"
#include "engine/formats/mapped_file.h"
#include "engine/model/families.h"
#include "engine/model/model.h"

namespace evalrun::engine {

// A tensor as a file holds it.
struct SourceTensor {
  std::string file;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // row-major: {out, in} or {n}
  std::span<const uint8_t> bytes;
  std::shared_ptr<const MappedFile> mapping;
};

struct SourceModel {
  std::string path;  // for messages
  Naming naming = Naming::kGguf;
  bool permuted_qk = false;
  std::map<std::string, SourceTensor>
      tensors;  // all of the file except what the loader used itself
};

struct AssembleOptions {
  int n_threads = 1;
  std::function<std::string()> hash;  // makes ModelParts::hash; empty = not wanted
  bool use_cache = true;              // of converted weights (weight_cache.h); needs the hash
  size_t cache_from_bytes = 0;
  std::optional<int64_t> cache_limit;  // bytes of all files; nullopt = weight_limit()'s
};

// Fills format (kAuto is resolved), stored_bits, hash, embedding, layers, final_norm and head of
// `parts` from the source. Streams: each thread holds one row besides the weights themselves.
// Strict: throws data_error for a missing or unused tensor, another shape, a type that holds no
// weights, NaN, infinity or a value the format cannot hold, and when the memory of this machine or
// its cgroup cannot hold the weights (before any is taken).
void assemble(const SourceModel& source, const AssembleOptions& options, ModelParts& parts);

// Bytes this process may still allocate: what /proc/meminfo calls available, or less when a cgroup
// limits it. Page cache counts as free.
int64_t available_memory_bytes();

}  // namespace evalrun::engine
