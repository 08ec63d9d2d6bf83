// A named list with manners: refuses duplicates, suggests neighbours for unknown names, keeps
// order. Filled by one explicit function per registry (no static initialisers: a linker may drop
// them).
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::base {

template <typename T>
class Registry {
 public:
  // `kind` is what the entries are called in messages: "method", "data set", ...
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  void add(std::string name, T entry) {
    EVALRUN_CHECK(find(name) == nullptr, "{} '{}' is registered twice", kind_, name);
    entries_.emplace_back(std::move(name), std::move(entry));
  }
  const T* find(std::string_view name) const {
    for (const auto& [n, e] : entries_)
      if (n == name) return &e;
    return nullptr;
  }
  // Throws a usage error that names the nearest entries.
  const T& get(std::string_view name) const {
    if (const T* e = find(name)) return *e;
    std::vector<std::string> names;
    for (const auto& entry : entries_) names.push_back(entry.first);
    throw usage_error(fmt::format("unknown {} '{}'", kind_, name), suggest(name, names));
  }
  const std::vector<std::pair<std::string, T>>& entries() const { return entries_; }

 private:
  std::string kind_;
  std::vector<std::pair<std::string, T>> entries_;
};

}  // namespace evalrun::base
