#include "engine/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/formats/gguf_types.h"

namespace evalrun::engine {
namespace {

// Value types of metadata, numbered as in the file.
enum class MetaType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
constexpr uint32_t kMetaTypes = 13;

// Least bytes an entry can take; bounds counts before anything is allocated.
constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint32_t kMaxDimensions = 4;

// A name from the file, safe to print: control and non-ASCII bytes are escaped, long ones cut.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F)
      out += c;
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  return text.size() > 80 ? out + "..." : out;
}

// Reads forward through the header; every read is checked against the end of the file.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const uint8_t> bytes) : path_(path), bytes_(bytes) {}

  uint64_t offset() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  [[noreturn]] void fail(std::string_view what, std::string hint = {}) const {
    throw base::data_error(path_, fmt::format("byte {}", at_), what, std::move(hint));
  }

  template <typename T>
  T number(std::string_view field) {
    need(sizeof(T), field);
    T value;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string string(std::string_view field) {
    const auto length = number<uint64_t>(field);
    need(length, field);
    std::string text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return text;
  }

  bool boolean(std::string_view field) {
    const auto value = number<uint8_t>(field);
    if (value > 1) fail(fmt::format("{} must be 0 or 1, not {}", field, value));
    return value == 1;
  }

  // How many entries follow; each takes at least `min_bytes`.
  uint64_t count(std::string_view field, uint64_t min_bytes) {
    const auto n = number<uint64_t>(field);
    if (n > left() / min_bytes)
      fail(fmt::format("{} is {}, but only {} bytes are left in the file", field, n, left()),
           "the file is truncated or damaged; download it again");
    return n;
  }

 private:
  void need(uint64_t n, std::string_view field) const {
    if (n > left())
      fail(fmt::format("{} needs {} bytes, but only {} are left in the file", field, n, left()),
           "the file is truncated or damaged; download it again");
  }

  const std::string& path_;
  std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;
};

MetaType read_meta_type(Cursor& in, std::string_view field) {
  const auto type = in.number<uint32_t>(field);
  if (type >= kMetaTypes)
    in.fail(fmt::format("{} has unknown value type {} (known: 0-{})", field, type, kMetaTypes - 1));
  return static_cast<MetaType>(type);
}

GgufScalar read_scalar(Cursor& in, MetaType type, std::string_view field) {
  switch (type) {
    case MetaType::kU8:
      return uint64_t{in.number<uint8_t>(field)};
    case MetaType::kI8:
      return int64_t{in.number<int8_t>(field)};
    case MetaType::kU16:
      return uint64_t{in.number<uint16_t>(field)};
    case MetaType::kI16:
      return int64_t{in.number<int16_t>(field)};
    case MetaType::kU32:
      return uint64_t{in.number<uint32_t>(field)};
    case MetaType::kI32:
      return int64_t{in.number<int32_t>(field)};
    case MetaType::kU64:
      return in.number<uint64_t>(field);
    case MetaType::kI64:
      return in.number<int64_t>(field);
    case MetaType::kF32:
      return double{in.number<float>(field)};
    case MetaType::kF64:
      return in.number<double>(field);
    case MetaType::kBool:
      return in.boolean(field);
    case MetaType::kString:
      return in.string(field);
    case MetaType::kArray:
      break;
  }
  in.fail(fmt::format("{} is not a scalar", field));
}

uint64_t least_bytes(MetaType type) {
  switch (type) {
    case MetaType::kU8:
    case MetaType::kI8:
    case MetaType::kBool:
      return 1;
    case MetaType::kU16:
    case MetaType::kI16:
      return 2;
    case MetaType::kU32:
    case MetaType::kI32:
    case MetaType::kF32:
      return 4;
    default:
      return 8;  // 64-bit numbers, and the length before a string
  }
}

GgufValue read_array(Cursor& in, std::string_view field) {
  const MetaType type = read_meta_type(in, field);
  if (type == MetaType::kArray)
    in.fail(fmt::format("{} is an array of arrays, which no supported model uses", field));
  const uint64_t n = in.count(field, least_bytes(type));
  const auto fill = [&]<typename T>(std::vector<T> out) {
    out.reserve(n);
    for (uint64_t i = 0; i < n; ++i) {
      const GgufScalar value = read_scalar(in, type, field);
      if constexpr (std::is_same_v<T, int64_t>) {
        if (const auto* u = std::get_if<uint64_t>(&value)) {
          if (*u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
            in.fail(fmt::format("{}[{}] does not fit 64 signed bits: {}", field, i, *u));
          out.push_back(static_cast<int64_t>(*u));
          continue;
        }
      }
      out.push_back(std::get<T>(value));
    }
    return GgufValue{std::move(out)};
  };
  switch (type) {
    case MetaType::kString:
      return fill(std::vector<std::string>());
    case MetaType::kBool:
      return fill(std::vector<bool>());
    case MetaType::kF32:
    case MetaType::kF64:
      return fill(std::vector<double>());
    default:
      return fill(std::vector<int64_t>());
  }
}

DType tensor_type(const Cursor& in, uint32_t id, const std::string& name) {
  const GgufType* type = gguf_type(id);
  if (type == nullptr)
    in.fail(fmt::format("tensor '{}' has unknown type {}", name, id), gguf_types_read());
  if (!type->dtype)
    in.fail(fmt::format("tensor '{}' has type {}, which is not supported", name, type->name),
            gguf_types_read());
  return *type->dtype;
}

// Tensor as listed; its offset is relative to the data section until that section's start is known.
struct ListedTensor {
  GgufTensor tensor;
  uint64_t offset = 0;
  uint64_t n_bytes = 0;
};

ListedTensor read_tensor_info(Cursor& in, uint64_t index) {
  ListedTensor out;
  out.tensor.name = in.string(fmt::format("name of tensor {}", index));
  const std::string name = printable(out.tensor.name);
  if (name.empty()) in.fail(fmt::format("tensor {} has no name", index));
  const auto n_dims = in.number<uint32_t>("number of dimensions");
  if (n_dims > kMaxDimensions)
    in.fail(
        fmt::format("tensor '{}' has {} dimensions (at most {})", name, n_dims, kMaxDimensions));
  uint64_t values = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    const auto ne = in.number<uint64_t>("dimension");
    // At most 2^56 values: the byte count below cannot overflow, whatever the type.
    if (ne == 0 || ne > (uint64_t{1} << 56) / values)
      in.fail(fmt::format("tensor '{}' has an impossible dimension {}: {}", name, d, ne));
    values *= ne;
    out.tensor.ne.push_back(static_cast<int64_t>(ne));
  }
  out.tensor.dtype = tensor_type(in, in.number<uint32_t>("tensor type"), name);
  if (out.tensor.row_length() % block_length(out.tensor.dtype) != 0)
    in.fail(fmt::format("tensor '{}' has rows of {} values, not a multiple of {} as {} needs", name,
                        out.tensor.row_length(), block_length(out.tensor.dtype),
                        dtype_name(out.tensor.dtype)),
            "quantise the model again: llama.cpp's quantiser stores such rows in another type");
  out.n_bytes = static_cast<uint64_t>(bytes_of(out.tensor.dtype, static_cast<int64_t>(values)));
  out.offset = in.number<uint64_t>("tensor offset");
  return out;
}

uint64_t read_alignment(const Cursor& in, const std::map<std::string, GgufValue>& metadata) {
  const auto it = metadata.find("general.alignment");
  if (it == metadata.end()) return 32;
  const auto* scalar = std::get_if<GgufScalar>(&it->second.value);
  const auto* value = scalar != nullptr ? std::get_if<uint64_t>(scalar) : nullptr;
  if (value == nullptr || !std::has_single_bit(*value) || *value > (1u << 20))
    in.fail("general.alignment must be a power of two up to 2^20");
  return *value;
}

// Places the tensors inside the file: aligned, complete and disjoint.
void place_tensors(const MappedFile& file, uint64_t data_start, uint64_t alignment,
                   std::vector<ListedTensor>& listed) {
  const std::span<const uint8_t> bytes = file.bytes();
  const uint64_t data_bytes = bytes.size() - std::min<uint64_t>(bytes.size(), data_start);
  const auto fail = [&](const ListedTensor& t, const std::string& what) {
    throw base::data_error(file.path(), fmt::format("tensor '{}'", printable(t.tensor.name)), what,
                           "the file is truncated or damaged; download it again");
  };
  for (ListedTensor& t : listed) {
    if (t.offset % alignment != 0)
      fail(t, fmt::format("its offset {} is not a multiple of {}", t.offset, alignment));
    if (t.offset > data_bytes || t.n_bytes > data_bytes - t.offset)
      fail(t, fmt::format("its {} bytes at byte {} reach beyond the end of the file ({} bytes)",
                          t.n_bytes, data_start + t.offset, bytes.size()));
    t.tensor.bytes = bytes.subspan(data_start + t.offset, t.n_bytes);
  }
  std::vector<const ListedTensor*> order;
  for (const ListedTensor& t : listed) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->n_bytes > order[i]->offset)
      fail(*order[i],
           fmt::format("its bytes overlap those of '{}'", printable(order[i - 1]->tensor.name)));
}

void read_magic_and_version(Cursor& in) {
  if (in.number<uint32_t>("magic") != 0x46554747u)
    in.fail("is not a GGUF file (it does not start with 'GGUF')",
            "pass a .gguf file or a Hugging Face folder");
  const auto version = in.number<uint32_t>("version");
  if (version == 0x02000000u || version == 0x03000000u)
    in.fail("is a big-endian GGUF file", "get the little-endian version");
  if (version != 2 && version != 3)
    in.fail(fmt::format("is GGUF version {}; versions 2 and 3 are read", version),
            "convert the model again with a current tool");
}

const char* kind(const GgufValue& v) {
  if (const auto* s = std::get_if<GgufScalar>(&v.value)) {
    constexpr const char* kNames[] = {"an integer", "an integer", "a number", "a boolean",
                                      "a text"};
    return kNames[s->index()];
  }
  constexpr const char* kNames[] = {"", "an array of integers", "an array of numbers",
                                    "an array of booleans", "an array of texts"};
  return kNames[v.value.index()];
}

[[noreturn]] void wrong_type(const GgufFile& file, const std::string& key, const char* expected,
                             const GgufValue& found) {
  throw base::data_error(file.path(), key,
                         fmt::format("must be {}, not {}", expected, kind(found)));
}

const GgufValue& find(const GgufFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end())
    throw base::data_error(file.path(), key, "is missing from the metadata",
                           "the file is incomplete or not a model; convert it again");
  return it->second;
}

template <typename T>
const std::vector<T>& array_of(const GgufFile& file, const std::string& key, const char* expected) {
  const GgufValue& v = find(file, key);
  const auto* array = std::get_if<std::vector<T>>(&v.value);
  if (array == nullptr) wrong_type(file, key, expected, v);
  return *array;
}

}  // namespace

int64_t GgufTensor::rows() const {
  int64_t n = 1;
  for (size_t d = 1; d < ne.size(); ++d) n *= ne[d];
  return n;
}

GgufFile::GgufFile(const std::string& path) : file_(std::make_shared<const MappedFile>(path)) {
  Cursor in(file_->path(), file_->bytes());
  read_magic_and_version(in);
  const uint64_t n_tensors = in.count("number of tensors", kMinTensorBytes);
  const uint64_t n_keys = in.count("number of metadata keys", kMinKeyValueBytes);
  for (uint64_t i = 0; i < n_keys; ++i) {
    std::string key = in.string(fmt::format("name of metadata key {}", i));
    const std::string shown = printable(key);
    if (key.empty()) in.fail(fmt::format("metadata key {} has no name", i));
    const std::string field = fmt::format("metadata key '{}'", shown);
    const MetaType type = read_meta_type(in, field);
    GgufValue value =
        type == MetaType::kArray ? read_array(in, field) : GgufValue{read_scalar(in, type, field)};
    if (!metadata_.emplace(std::move(key), std::move(value)).second)
      in.fail(fmt::format("{} occurs twice", field));
  }
  std::vector<ListedTensor> listed;
  listed.reserve(n_tensors);
  for (uint64_t i = 0; i < n_tensors; ++i) listed.push_back(read_tensor_info(in, i));

  const uint64_t alignment = read_alignment(in, metadata_);
  const uint64_t data_start = (in.offset() + alignment - 1) / alignment * alignment;
  place_tensors(*file_, data_start, alignment, listed);
  for (ListedTensor& t : listed) {
    const std::string name = t.tensor.name;
    if (!tensors_.emplace(name, std::move(t.tensor)).second)
      throw base::data_error(file_->path(), fmt::format("tensor '{}'", printable(name)),
                             "occurs twice");
  }
}

int64_t GgufFile::integer(const std::string& key) const {
  const GgufValue& v = find(*this, key);
  if (const auto* s = std::get_if<GgufScalar>(&v.value)) {
    if (const auto* i = std::get_if<int64_t>(s)) return *i;
    if (const auto* u = std::get_if<uint64_t>(s)) {
      if (*u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        throw base::data_error(path(), key, fmt::format("is out of range: {}", *u));
      return static_cast<int64_t>(*u);
    }
  }
  wrong_type(*this, key, "an integer", v);
}

int64_t GgufFile::integer_or(const std::string& key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufFile::number(const std::string& key) const {
  const GgufValue& v = find(*this, key);
  if (const auto* s = std::get_if<GgufScalar>(&v.value))
    if (const auto* d = std::get_if<double>(s)) return *d;
  if (const auto* s = std::get_if<GgufScalar>(&v.value);
      s != nullptr && (s->index() == 0 || s->index() == 1))
    return static_cast<double>(integer(key));
  wrong_type(*this, key, "a number", v);
}

double GgufFile::number_or(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool GgufFile::boolean_or(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  const GgufValue& v = find(*this, key);
  if (const auto* s = std::get_if<GgufScalar>(&v.value))
    if (const auto* b = std::get_if<bool>(s)) return *b;
  wrong_type(*this, key, "a boolean", v);
}

std::string GgufFile::text(const std::string& key) const {
  const GgufValue& v = find(*this, key);
  if (const auto* s = std::get_if<GgufScalar>(&v.value))
    if (const auto* t = std::get_if<std::string>(s)) return *t;
  wrong_type(*this, key, "a text", v);
}

std::string GgufFile::text_or(const std::string& key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

const std::vector<std::string>& GgufFile::texts(const std::string& key) const {
  return array_of<std::string>(*this, key, "an array of texts");
}
const std::vector<int64_t>& GgufFile::integers(const std::string& key) const {
  return array_of<int64_t>(*this, key, "an array of integers");
}
const std::vector<double>& GgufFile::numbers(const std::string& key) const {
  return array_of<double>(*this, key, "an array of numbers");
}

}  // namespace evalrun::engine
