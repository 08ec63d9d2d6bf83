// Tallies counted anew, in SQL. Internal to results/.
#pragma once
#include <sqlite3.h>

#include <cstdint>

namespace evalrun::results {

// The function generation_tally(id) of one connection: what add_generation() stores in the column
// `tally`, from the rows of turn, step and node of the main database. NULL where a number of them
// is not whole, negative or above 2^53.
class TallyFunction {
 public:
  TallyFunction() = default;
  ~TallyFunction() { forget_statements(); }
  TallyFunction(const TallyFunction&) = delete;
  TallyFunction& operator=(const TallyFunction&) = delete;

  // This must outlive the connection.
  void add_to(sqlite3* db);
  // Before the connection is closed, which waits for its statements else.
  void forget_statements();

 private:
  void answer(sqlite3_context* context, int64_t generation_id);

  // Prepared at the first call: before, an older file may lack columns.
  sqlite3_stmt* turns_ = nullptr;
  sqlite3_stmt* steps_ = nullptr;
  sqlite3_stmt* nodes_ = nullptr;
};

}  // namespace evalrun::results
