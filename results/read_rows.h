// The two shapes of a query: one row, or all of them.
#pragma once
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "results/store.h"

namespace evalrun::results {

// What `read` makes of the first row; nothing where there is no row.
template <typename Read, typename T = std::invoke_result_t<Read, const Row&>>
std::optional<T> one(const ResultStore& store, const std::string& sql,
                     const std::vector<Value>& parameters, const Read& read) {
  std::optional<T> found;
  store.query(sql, parameters, [&](const Row& row) {
    found.emplace(read(row));
    return false;
  });
  return found;
}

// What `read` makes of every row, in the query's order.
template <typename Read, typename T = std::invoke_result_t<Read, const Row&>>
std::vector<T> all(const ResultStore& store, const std::string& sql,
                   const std::vector<Value>& parameters, const Read& read) {
  std::vector<T> rows;
  store.query(sql, parameters, [&](const Row& row) {
    rows.push_back(read(row));
    return true;
  });
  return rows;
}

// Queries of one column: int64_t or std::string.
template <typename T>
T only_column(const Row& row) {
  if constexpr (std::is_same_v<T, std::string>)
    return row.text(0);
  else
    return row.integer(0);
}
template <typename T>
std::optional<T> one(const ResultStore& store, const std::string& sql,
                     const std::vector<Value>& parameters = {}) {
  return one(store, sql, parameters,
             [](const Row& row) {
               return row.is_null(0) ? std::nullopt : std::optional<T>(only_column<T>(row));
             })
      .value_or(std::nullopt);  // NULL is nothing, too
}
template <typename T>
std::vector<T> all(const ResultStore& store, const std::string& sql,
                   const std::vector<Value>& parameters = {}) {
  return all(store, sql, parameters, only_column<T>);
}

}  // namespace evalrun::results
