// What SQLite is asked while something runs, on every connection opened meanwhile: statements with
// their values, how long each took, and which tables it would read from end to end.
#pragma once
#include <string>
#include <vector>

#include "results/store.h"

namespace evalrun::tests {

struct WatchedQuery {
  std::string sql;  // parameters filled in
  double seconds = 0;
};

// One at a time; the stores it watches are opened after it.
class QueryWatch {
 public:
  QueryWatch();
  ~QueryWatch();
  QueryWatch(const QueryWatch&) = delete;
  QueryWatch& operator=(const QueryWatch&) = delete;
  // Statements that have ended, in this order; the list is emptied.
  std::vector<WatchedQuery> take();
};

// The lines of EXPLAIN QUERY PLAN.
std::vector<std::string> query_plan(const results::ResultStore& store, const std::string& sql);
// Those that read a table or an index of it from end to end, but for the tables with a row per
// setting, run or arm.
std::vector<std::string> full_scans(const std::vector<std::string>& plan);

}  // namespace evalrun::tests
