// The types that tensors of a GGUF file can have, by their numbers there (enum ggml_type of
// ggml.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/formats/dtype.h"

namespace evalrun::engine {

struct GgufType {
  uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;  // nullopt: known to GGUF, not read here
};

const GgufType* gguf_type(uint32_t id);  // nullptr: no such type is known
// A hint that names the types of weights that are read.
std::string gguf_types_read();

}  // namespace evalrun::engine
