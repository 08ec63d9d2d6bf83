// Temporary folders, made-up vocabularies and a small GGUF writer for the tokenizer tests.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/temp_folder.h"

namespace evalrun::engine::testing {

using tests::TempFolder;

// "h e l o" words with merges to "hello", byte-level, GPT-2 splitting, one special token.
inline nlohmann::json small_bpe_json() {
  return nlohmann::json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 9, "content": "<|end|>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null,
              "vocab": {"h": 0, "e": 1, "l": 2, "o": 3, "\u0120": 4, "he": 5, "ll": 6, "hell": 7,
                        "hello": 8},
              "merges": ["h e", "l l", "he ll", "hell o"]}})");
}

// The message of the data_error that `run` throws; fails the test when it throws none.
template <typename Run>
std::string data_error_of(Run run) {
  try {
    run();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

// Metadata-only GGUF v3 files.
class GgufWriter {
 public:
  GgufWriter& text(const std::string& key, const std::string& value) {
    start(key, 8);
    put_text(body_, value);
    return *this;
  }
  GgufWriter& uint32(const std::string& key, uint32_t value) {
    start(key, 4);
    put(body_, value);
    return *this;
  }
  GgufWriter& boolean(const std::string& key, bool value) {
    start(key, 7);
    put(body_, static_cast<uint8_t>(value));
    return *this;
  }
  GgufWriter& texts(const std::string& key, const std::vector<std::string>& values) {
    start_array(key, 8, values.size());
    for (const std::string& v : values) put_text(body_, v);
    return *this;
  }
  GgufWriter& floats(const std::string& key, const std::vector<float>& values) {
    start_array(key, 6, values.size());
    for (float v : values) put(body_, v);
    return *this;
  }
  GgufWriter& int32s(const std::string& key, const std::vector<int32_t>& values) {
    start_array(key, 5, values.size());
    for (int32_t v : values) put(body_, v);
    return *this;
  }
  std::string bytes() const {
    std::string out = "GGUF";
    put(out, uint32_t{3});
    put(out, uint64_t{0});  // tensors
    put(out, n_keys_);
    return out + body_;
  }

 private:
  template <typename T>
  static void put(std::string& out, T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out.append(raw, sizeof(T));
  }
  static void put_text(std::string& out, const std::string& value) {
    put(out, static_cast<uint64_t>(value.size()));
    out += value;
  }
  void start(const std::string& key, uint32_t type) {
    ++n_keys_;
    put_text(body_, key);
    put(body_, type);
  }
  void start_array(const std::string& key, uint32_t type, size_t n) {
    start(key, 9);
    put(body_, type);
    put(body_, static_cast<uint64_t>(n));
  }

  uint64_t n_keys_ = 0;
  std::string body_;
};

}  // namespace evalrun::engine::testing
