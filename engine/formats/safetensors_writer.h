// Writes safetensors files: header length, JSON header, then the tensors' bytes without holes.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/formats/dtype.h"

namespace evalrun::engine {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;      // row-major
  std::span<const uint8_t> bytes;  // exactly bytes_of(dtype, product of shape), little-endian
};

// The bytes of values that lie in sequence.
template <typename T>
std::span<const uint8_t> bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

// Readers see the whole file or none: it is written beside PATH (PATH.tmp.<process>), brought to
// the disk and renamed. Tensors with wide values come first, so that every tensor is aligned to its
// type. Throws data_error (with the reason, such as a full disk) when it cannot be written,
// InternalError for bytes that do not fit their shape, names that repeat and types safetensors does
// not have.
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace evalrun::engine
