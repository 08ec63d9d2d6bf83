// GGUF v2 and v3 files: metadata and tensor table, memory-mapped. Trusts nothing in the file: every
// count, length and offset is checked against the file's size before it is used.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/formats/dtype.h"
#include "engine/formats/mapped_file.h"

namespace evalrun::engine {

// One metadata value. Integers are widened to 64 bits, floats to double.
using GgufScalar = std::variant<int64_t, uint64_t, double, bool, std::string>;
struct GgufValue {
  std::variant<GgufScalar, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string>>
      value;
};

struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> ne;         // ne[0] = length of a contiguous row, as stored
  std::span<const uint8_t> bytes;  // inside the mapping
  int64_t rows() const;            // product of ne[1..]
  int64_t row_length() const { return ne.empty() ? 1 : ne[0]; }
};

class GgufFile {
 public:
  // Throws data_error naming the field or tensor and the byte offset.
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }

  bool has(const std::string& key) const { return metadata_.contains(key); }
  // Typed access; a missing key or another type is a data_error naming the key. The `or_` forms
  // return the fallback when the key is absent (a wrong type is still an error).
  int64_t integer(const std::string& key) const;
  int64_t integer_or(const std::string& key, int64_t fallback) const;
  double number(const std::string& key) const;
  double number_or(const std::string& key, double fallback) const;
  bool boolean_or(const std::string& key, bool fallback) const;
  std::string text(const std::string& key) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  const std::vector<int64_t>& integers(const std::string& key) const;
  const std::vector<double>& numbers(const std::string& key) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, GgufValue> metadata_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace evalrun::engine
