#include "engine/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"

namespace evalrun::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDamaged = "the file is truncated or damaged; download it again";
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation

// One file's tensors and "__metadata__".
struct Shard {
  std::shared_ptr<const MappedFile> file;
  std::map<std::string, SafeTensor> tensors;
  std::map<std::string, std::string> metadata;
};

[[noreturn]] void fail(const std::string& path, const std::string& where, const std::string& what,
                       std::string hint = kDamaged) {
  throw base::data_error(path, where, what, std::move(hint));
}

// For names and values out of the file; JSON escapes keep them printable and dump() never throws.
std::string shown(const std::string& text) {
  return json(text.substr(0, 100)).dump(-1, ' ', true, json::error_handler_t::replace);
}

// nlohmann keeps the last of equal keys without a word, so duplicates are caught while parsing.
json parse_header(const std::string& path, std::string_view text) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth == 1 && event == json::parse_event_t::key && value.is_string() &&
        !names.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  try {
    json header = json::parse(text.begin(), text.end(), watch);
    if (!header.is_object()) fail(path, "header", "is not a JSON object");
    if (!twice.empty()) fail(path, "header", fmt::format("names tensor {} twice", shown(twice)));
    return header;
  } catch (const json::parse_error& error) {
    fail(path, "header", fmt::format("is not valid JSON (byte {})", 8 + error.byte));
  } catch (const json::out_of_range&) {  // 1e999
    fail(path, "header", "holds a number out of range");
  }
}

DType dtype_of(const std::string& path, const std::string& place, const std::string& name) {
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64,
                        DType::kU8, DType::kI8, DType::kBool})
    if (dtype_name(t) == name) return t;
  fail(path, place, fmt::format("has type {}, which is not supported", shown(name)),
       "supported: F32, F16, BF16; convert the model to one of these");
}

// One entry of the header; `data` is what follows the header.
SafeTensor read_tensor(const std::string& path, const std::string& name, const json& entry,
                       std::span<const uint8_t> data) {
  const std::string place = fmt::format("tensor {}", shown(name));
  if (!entry.is_object()) fail(path, place, "must be an object");
  base::ObjectReader reader(entry, path, place);
  SafeTensor tensor;
  tensor.name = name;
  tensor.file = path;
  tensor.dtype = dtype_of(path, place, reader.required<std::string>("dtype"));
  const json* shape = reader.raw("shape");
  const json* offsets = reader.raw("data_offsets");
  reader.finish();
  if (shape == nullptr || !shape->is_array()) fail(path, place, "needs a shape");
  uint64_t values = 1;
  for (const json& dimension : *shape) {
    // At most 2^56 values, so that the byte count cannot overflow.
    if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() > (uint64_t{1} << 56) ||
        (values > 0 && dimension.get<uint64_t>() > (uint64_t{1} << 56) / values))
      fail(path, place, "has an impossible shape");
    values *= dimension.get<uint64_t>();
    tensor.shape.push_back(dimension.get<int64_t>());
  }
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
    fail(path, place, "needs data_offsets [begin, end]");
  const auto begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data.size())
    fail(path, place,
         fmt::format("its bytes {}..{} are not inside the file ({} bytes of data)", begin, end,
                     data.size()));
  const auto expected = static_cast<uint64_t>(bytes_of(tensor.dtype, static_cast<int64_t>(values)));
  if (end - begin != expected)
    fail(path, place, fmt::format("holds {} bytes, but its shape needs {}", end - begin, expected));
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

// The format allows neither overlaps nor holes.
void check_layout(const Shard& shard, std::span<const uint8_t> data) {
  std::vector<const SafeTensor*> order;
  for (const auto& entry : shard.tensors) order.push_back(&entry.second);
  std::sort(order.begin(), order.end(), [](const SafeTensor* a, const SafeTensor* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) <
           std::pair(b->bytes.data(), b->bytes.size());
  });
  const uint8_t* end = data.data();
  for (const SafeTensor* t : order) {
    if (t->bytes.data() != end)
      fail(t->file, fmt::format("tensor {}", shown(t->name)),
           t->bytes.data() < end ? "its bytes overlap another tensor's"
                                 : "there are unused bytes before it");
    end += t->bytes.size();
  }
  if (end != data.data() + data.size())
    fail(shard.file->path(), "data",
         fmt::format("{} bytes after the last tensor", data.data() + data.size() - end));
}

Shard read_shard(const std::string& path) {
  Shard shard;
  shard.file = std::make_shared<const MappedFile>(path);
  const std::span<const uint8_t> bytes = shard.file->bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) fail(path, "byte 0", "is too short for safetensors");
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - sizeof header_bytes)
    fail(path, "byte 0",
         fmt::format("the header is said to have {} bytes; the file has {}", header_bytes,
                     bytes.size()));
  const json header = parse_header(
      path, {reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes, header_bytes});
  const std::span<const uint8_t> data = bytes.subspan(sizeof header_bytes + header_bytes);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) fail(path, "__metadata__", "must be an object of texts");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) fail(path, "__metadata__", "must be an object of texts");
        shard.metadata.emplace(key, value.get<std::string>());
      }
    } else {
      shard.tensors.emplace(name, read_tensor(path, name, entry, data));
    }
  }
  check_layout(shard, data);
  return shard;
}

// weight_map of the index: tensor -> shard file name.
std::map<std::string, std::string> read_index(const std::string& path) {
  const json index = base::parse_json(base::read_file(path), path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail(path, "weight_map", "is missing or not an object");
  std::map<std::string, std::string> map;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string())
      fail(path, fmt::format("weight_map[{}]", shown(name)), "must be a file name");
    const auto file_name = file.get<std::string>();
    // An index must not reach out of its folder.
    if (file_name.empty() || file_name.find('/') != std::string::npos || file_name == "." ||
        file_name == ".." || file_name.find('\0') != std::string::npos)
      fail(path, fmt::format("weight_map[{}]", shown(name)),
           fmt::format("{} is not a plain file name", shown(file_name)));
    map.emplace(name, file_name);
  }
  if (map.empty()) fail(path, "weight_map", "is empty");
  return map;
}

std::string find_weights(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(folder / name, error)) return (folder / name).string();
  const bool pickled = fs::exists(folder / "pytorch_model.bin", error) ||
                       fs::exists(folder / "pytorch_model.bin.index.json", error);
  fail(folder.string(), "", "holds neither model.safetensors nor model.safetensors.index.json",
       pickled
           ? "the folder has only pickled weights; save the model as safetensors (transformers: "
             "save_pretrained(..., safe_serialization=True))"
           : "download the weights of the model into this folder");
}

}  // namespace

SafeTensors::SafeTensors(const std::string& path) {
  std::error_code error;
  const std::string weights = fs::is_directory(path, error) ? find_weights(path) : path;
  if (!weights.ends_with(".index.json")) {
    Shard shard = read_shard(weights);
    files_.push_back(std::move(shard.file));
    tensors_ = std::move(shard.tensors);
    metadata_ = std::move(shard.metadata);
    return;
  }
  const std::map<std::string, std::string> map = read_index(weights);
  std::set<std::string> names;
  for (const auto& entry : map) names.insert(entry.second);
  for (const std::string& name : names) {
    Shard shard = read_shard((fs::path(weights).parent_path() / name).string());
    for (auto& [tensor_name, tensor] : shard.tensors) {
      const auto it = map.find(tensor_name);
      if (it == map.end() || it->second != name)
        fail(shard.file->path(), fmt::format("tensor {}", shown(tensor_name)),
             it == map.end() ? "is not in the index"
                             : fmt::format("the index says it is in {}", shown(it->second)),
             "index and shards belong to different models; download both again");
      tensors_.emplace(tensor_name, std::move(tensor));
    }
    metadata_.merge(shard.metadata);
    files_.push_back(std::move(shard.file));
  }
  for (const auto& [name, file] : map)
    if (!tensors_.contains(name))
      fail(weights, fmt::format("weight_map[{}]", shown(name)),
           fmt::format("the tensor is not in {}", shown(file)),
           "index and shards belong to different models; download both again");
}

}  // namespace evalrun::engine
