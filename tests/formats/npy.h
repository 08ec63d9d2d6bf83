// Reads the arrays the fixtures store: NumPy format 1.0, little-endian float32, C order.
#pragma once
#include <cstdint>
#include <cstring>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/text.h"

namespace evalrun::engine::testing {

struct NpyArray {
  std::vector<size_t> shape;
  std::vector<float> values;
};

inline NpyArray read_npy(const std::string& path) {
  const std::string bytes = base::read_file(path);
  if (bytes.size() < 10 || bytes.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) != 0)
    throw std::runtime_error(path + ": not a NumPy 1.0 file");
  const size_t header_size = static_cast<uint8_t>(bytes[8]) + 256u * static_cast<uint8_t>(bytes[9]);
  const std::string header = bytes.substr(10, header_size);
  if (header.find("'<f4'") == std::string::npos || header.find("False") == std::string::npos)
    throw std::runtime_error(path + ": not float32 in C order");
  NpyArray array;
  std::smatch match;
  if (!std::regex_search(header, match, std::regex(R"('shape': \(([0-9, ]*)\))")))
    throw std::runtime_error(path + ": no shape");
  size_t n = 1;
  for (const std::string& part : base::split(match[1].str(), ',')) {
    if (base::trim(part).empty()) continue;
    array.shape.push_back(std::stoul(part));
    n *= array.shape.back();
  }
  if (bytes.size() != 10 + header_size + n * sizeof(float))
    throw std::runtime_error(path + ": wrong size");
  array.values.resize(n);
  std::memcpy(array.values.data(), bytes.data() + 10 + header_size, n * sizeof(float));
  return array;
}

}  // namespace evalrun::engine::testing
