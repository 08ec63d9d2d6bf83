// safetensors files, single or sharded through model.safetensors.index.json, memory-mapped and
// checked (header length, offsets, shapes against byte counts, overlaps, duplicate names).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/formats/dtype.h"
#include "engine/formats/mapped_file.h"

namespace evalrun::engine {

struct SafeTensor {
  std::string name;
  std::string file;  // shard it lies in, for messages
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // row-major
  std::span<const uint8_t> bytes;
};

class SafeTensors {
 public:
  // PATH: a .safetensors file, or a folder with model.safetensors or the index and its shards.
  explicit SafeTensors(const std::string& path);
  const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<std::string, SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace evalrun::engine
