#include "engine/formats/safetensors_writer.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::engine {
namespace {

constexpr size_t kAlignment =
    8;  // of the data's first byte, as the reference implementation has it

void check(const TensorToWrite& t) {
  EVALRUN_CHECK(block_length(t.dtype) == 1, "tensor {}: safetensors has no type {}", t.name,
                dtype_name(t.dtype));
  int64_t values = 1;
  for (const int64_t dimension : t.shape) {
    EVALRUN_CHECK(dimension >= 0, "tensor {}: dimension {}", t.name, dimension);
    values *= dimension;
  }
  EVALRUN_CHECK(static_cast<int64_t>(t.bytes.size()) == bytes_of(t.dtype, values),
                "tensor {} has {} bytes, its shape needs {}", t.name, t.bytes.size(),
                bytes_of(t.dtype, values));
}

std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  static_assert(std::endian::native == std::endian::little);
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& t : tensors) {
    check(t);
    order.push_back(&t);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return block_bytes(a->dtype) > block_bytes(b->dtype);
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const TensorToWrite* t : order) {
    EVALRUN_CHECK(t->name != "__metadata__" && !header.contains(t->name),
                  "tensor {} occurs twice, or has the name of the metadata", t->name);
    header[t->name] = {{"dtype", dtype_name(t->dtype)},
                       {"shape", t->shape},
                       {"data_offsets", {offset, offset + t->bytes.size()}}};
    offset += t->bytes.size();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');

  const uint64_t length = text.size();
  std::vector<std::string_view> parts = {{reinterpret_cast<const char*>(&length), sizeof length},
                                         text};
  for (const TensorToWrite* t : order) parts.push_back(as_text(t->bytes));
  base::write_file_atomic(path, parts);
}

}  // namespace evalrun::engine
