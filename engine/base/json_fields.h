// Strict reading of JSON objects: unknown keys are errors with a suggestion, wrong types name file
// and field. Used for suites, manifests, data files and model configurations.
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::base {

// Parses text; a syntax error becomes a data_error with line and column.
nlohmann::json parse_json(std::string_view text, const std::string& file);

// Reads named fields of one object and remembers which were asked for.
//   ObjectReader r(j, "suite.json", "arms[0]");
//   a.method = r.required<std::string>("method"); a.n = r.optional<int>("max_new", 64); r.finish();
class ObjectReader {
 public:
  // `path` is the place inside the file, for messages ("" at top level). `code` is the exit code of
  // the errors thrown: kUsage for suites and options, kData for data and model files.
  ObjectReader(const nlohmann::json& object, std::string file, std::string path,
               ExitCode code = ExitCode::kData);

  bool has(const std::string& key);
  const nlohmann::json* raw(const std::string& key);  // nullptr when absent

  template <typename T>
  T required(const std::string& key) {
    const nlohmann::json* v = raw(key);
    if (v == nullptr) fail(key, "is missing");
    return convert<T>(key, *v);
  }
  template <typename T>
  T optional(const std::string& key, T fallback) {
    const nlohmann::json* v = raw(key);
    return v == nullptr || v->is_null() ? fallback : convert<T>(key, *v);
  }
  // Throws if the object has keys nobody asked for.
  void finish() const;
  // Those keys, and what was asked for.
  std::vector<std::string> unknown() const;
  std::vector<std::string> asked() const { return {asked_.begin(), asked_.end()}; }
  [[noreturn]] void fail(const std::string& key, const std::string& what,
                         const std::string& hint = {}) const;
  std::string place(const std::string& key) const;

 private:
  template <typename T>
  T convert(const std::string& key, const nlohmann::json& v) {
    // nlohmann converts between numbers, and true to 1, without a word; a lying file must not pass.
    if constexpr (std::is_same_v<T, bool>) {
      if (!v.is_boolean()) fail(key, fmt::format("must be true or false, not {}", v.type_name()));
    } else if constexpr (std::is_integral_v<T>) {
      if (!v.is_number_integer())
        fail(key, fmt::format("must be an integer, not {}", v.type_name()));
      // Range: get<T>() would wrap around silently.
      const bool fits =
          v.is_number_unsigned()
              ? v.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max())
              : v.get<int64_t>() >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
                    (v.get<int64_t>() < 0 ||
                     static_cast<uint64_t>(v.get<int64_t>()) <=
                         static_cast<uint64_t>(std::numeric_limits<T>::max()));
      if (!fits) fail(key, fmt::format("is out of range: {}", v.dump()));
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!v.is_number()) fail(key, fmt::format("must be a number, not {}", v.type_name()));
    }
    try {
      return v.get<T>();
    } catch (const nlohmann::json::exception&) {
      fail(key, fmt::format("has the wrong type ({})", v.type_name()));
    }
  }

  const nlohmann::json& object_;
  std::string file_, path_;
  ExitCode code_;
  std::set<std::string> asked_;
};

}  // namespace evalrun::base
