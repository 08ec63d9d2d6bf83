// Files made by tests: a temporary folder, and GGUF and safetensors files built field by field so
// that each can be made to lie.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "tests/temp_folder.h"

namespace evalrun::engine::testing {

using tests::TempFolder;

inline std::string data_path(const std::string& name) {
  return std::string(EVALRUN_TEST_DATA "/models/") + name;
}

template <typename T>
void append(std::string& bytes, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void append_text(std::string& bytes, std::string_view text) {
  append<uint64_t>(bytes, text.size());
  bytes += text;
}

// A GGUF file in pieces. Counts follow the pieces unless a test overrides them.
class GgufBuilder {
 public:
  uint32_t magic = 0x46554747u, version = 3;
  int64_t n_tensors = -1, n_keys = -1;
  uint64_t alignment = 32;

  enum Type : uint32_t {
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

  template <typename T>
  GgufBuilder& scalar(std::string_view key, uint32_t type, T value) {
    begin_key(key, type);
    append(keys_, value);
    return *this;
  }
  GgufBuilder& text(std::string_view key, std::string_view value) {
    begin_key(key, kString);
    append_text(keys_, value);
    return *this;
  }
  // `raw`: the elements as they lie in the file.
  GgufBuilder& array(std::string_view key, uint32_t type, uint64_t n, std::string_view raw) {
    begin_key(key, kArray);
    append(keys_, type);
    append(keys_, n);
    keys_ += raw;
    return *this;
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                      uint64_t offset) {
    append_text(tensors_, name);
    append(tensors_, static_cast<uint32_t>(ne.size()));
    for (const uint64_t n : ne) append(tensors_, n);
    append(tensors_, type);
    append(tensors_, offset);
    ++tensors_added_;
    return *this;
  }
  GgufBuilder& data(std::string_view bytes) {
    data_ += bytes;
    return *this;
  }

  std::string bytes() const {
    std::string out;
    append(out, magic);
    append(out, version);
    append<uint64_t>(out, static_cast<uint64_t>(n_tensors < 0 ? tensors_added_ : n_tensors));
    append<uint64_t>(out, static_cast<uint64_t>(n_keys < 0 ? keys_added_ : n_keys));
    out += keys_ + tensors_;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  void begin_key(std::string_view key, uint32_t type) {
    append_text(keys_, key);
    append(keys_, type);
    ++keys_added_;
  }
  std::string keys_, tensors_, data_;
  int64_t tensors_added_ = 0, keys_added_ = 0;
};

// header length, header, data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string out;
  append<uint64_t>(out, header.size());
  out += header;
  out += data;
  return out;
}

// Runs `action` and expects an error of exit code 7 whose text has all of `parts`.
template <typename Action>
void expect_data_error(const Action& action, const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one about " << ::testing::PrintToString(parts);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kData) << error.what();
    for (const std::string& part : parts)
      EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(part));
    // One screen, printable.
    EXPECT_LT(std::string_view(error.what()).size(), 1500u);
  }
}

}  // namespace evalrun::engine::testing
