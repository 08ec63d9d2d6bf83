// JSON Lines for the small tools: one object per line in, one per line out.
#pragma once
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace evalrun::cli {

// Reads objects line by line, in order; lines of white space are skipped. "-" is standard input.
class JsonlReader {
 public:
  explicit JsonlReader(const std::string& path);  // throws data_error when it cannot be opened
  // The next object, nullopt at the end. Throws data_error (file, line) for anything else.
  std::optional<nlohmann::json> next();

  const std::string& file() const { return file_; }
  int64_t line() const { return line_; }  // lines read so far, empty ones included
  std::string place() const;              // of the object read last: "FILE: line 3"
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;

  // Typed fields of the object read last; a missing key or another type is a data_error.
  std::string text(const nlohmann::json& object, const std::string& key) const;
  // Token ids, each in [0, vocab_size).
  std::vector<int32_t> tokens(const nlohmann::json& object, const std::string& key,
                              int vocab_size) const;

 private:
  std::string file_;
  std::ifstream stream_;
  std::istream* in_;
  int64_t line_ = 0;
};

}  // namespace evalrun::cli
