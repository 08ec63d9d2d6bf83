// What a query finds in a result file, as text.
#pragma once
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::runners {

// One line per row, its columns with a space between them.
inline std::vector<std::string> stored_rows(const results::ResultStore& store,
                                            const std::string& sql) {
  std::vector<std::string> lines;
  store.query(sql, {}, [&](const results::Row& row) {
    std::string line;
    for (int c = 0; c < row.columns(); ++c) line += (c ? " " : "") + row.text(c);
    lines.push_back(line);
    return true;
  });
  return lines;
}

}  // namespace evalrun::runners
