#include "results/tally_function.h"

#include <optional>
#include <string>
#include <string_view>

#include "results/tally.h"

namespace evalrun::results {
namespace {

constexpr const char* kTallyTurns =
    "SELECT id, idx, stop, n_tokens, n_steps, drafted, drafted_depth, accepted, emitted, "
    "target_forwards, rows, undrafted, draft_ns, verify_ns, decode_ns, prefill_ns, "
    "draft_prefill_ns FROM main.turn WHERE generation_id = ?";
constexpr const char* kTallySteps =
    "SELECT drafted_depth, accepted, emitted FROM main.step WHERE turn_id = ?";
constexpr const char* kTallyNodes =
    "SELECT depth, rank, tested, accepted FROM main.node WHERE turn_id = ?";

// All rows of a statement with one parameter. `use` returns a code of SQLite's, as this does; one
// other than SQLITE_OK ends it.
template <typename Use>
int for_tally_rows(sqlite3* db, sqlite3_stmt*& statement, const char* sql, int64_t id,
                   const Use& use) {
  if (statement == nullptr)
    if (const int code = sqlite3_prepare_v2(db, sql, -1, &statement, nullptr); code != SQLITE_OK)
      return code;
  int code = sqlite3_bind_int64(statement, 1, id);
  while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) code = use(statement);
  sqlite3_reset(statement);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

// Numbers of a row, as long as they are what a tally can hold.
class TallyColumns {
 public:
  int64_t number(sqlite3_stmt* row, int column) {
    constexpr int64_t kMost = int64_t{1} << 53;
    const bool whole = sqlite3_column_type(row, column) == SQLITE_INTEGER;
    const int64_t n = whole ? sqlite3_column_int64(row, column) : -1;
    if (n >= 0 && n <= kMost) return n;
    ok_ = false;
    return 0;
  }
  bool ok() const { return ok_; }

 private:
  bool ok_ = true;
};

TallyTurn tally_turn(sqlite3_stmt* row, TallyColumns& columns) {
  TallyTurn t;
  t.first = sqlite3_column_int64(row, 1) == 0;
  const auto* stop = reinterpret_cast<const char*>(sqlite3_column_text(row, 2));
  t.stop_token = stop != nullptr && std::string_view(stop) == "stop_token";
  int column = 3;
  for (int64_t* number : {&t.n_tokens, &t.n_steps, &t.drafted, &t.drafted_depth, &t.accepted,
                          &t.emitted, &t.target_forwards, &t.rows, &t.undrafted, &t.draft_ns,
                          &t.verify_ns, &t.decode_ns, &t.prefill_ns, &t.draft_prefill_ns})
    *number = columns.number(row, column++);
  return t;
}

}  // namespace

void TallyFunction::add_to(sqlite3* db) {
  const auto call = [](sqlite3_context* context, int, sqlite3_value** values) {
    static_cast<TallyFunction*>(sqlite3_user_data(context))
        ->answer(context, sqlite3_value_int64(values[0]));
  };
  sqlite3_create_function(db, "generation_tally", 1, SQLITE_UTF8, this, call, nullptr, nullptr);
}

void TallyFunction::forget_statements() {
  for (sqlite3_stmt** statement : {&turns_, &steps_, &nodes_}) {
    sqlite3_finalize(*statement);
    *statement = nullptr;
  }
}

void TallyFunction::answer(sqlite3_context* context, int64_t generation_id) {
  sqlite3* db = sqlite3_context_db_handle(context);
  Tally tally;
  TallyColumns columns;
  const auto add_step = [&](sqlite3_stmt* row) {
    const int64_t depth = columns.number(row, 0), accepted = columns.number(row, 1);
    tally.add_step(depth, accepted, columns.number(row, 2));
    return SQLITE_OK;
  };
  const auto add_node = [&](sqlite3_stmt* row) {
    const int64_t depth = columns.number(row, 0), rank = columns.number(row, 1);
    const int64_t tested = columns.number(row, 2);
    tally.add_node(depth, rank, tested, columns.number(row, 3));
    return SQLITE_OK;
  };
  const int code =
      for_tally_rows(db, turns_, kTallyTurns, generation_id, [&](sqlite3_stmt* row) -> int {
        const int64_t turn = sqlite3_column_int64(row, 0);
        tally.add(tally_turn(row, columns));
        const int of_steps = for_tally_rows(db, steps_, kTallySteps, turn, add_step);
        if (of_steps != SQLITE_OK) return of_steps;
        return for_tally_rows(db, nodes_, kTallyNodes, turn, add_node);
      });
  if (code != SQLITE_OK) return sqlite3_result_error_code(context, code);
  const std::optional<std::string> blob = columns.ok() ? packed(tally) : std::nullopt;
  if (!blob) return sqlite3_result_null(context);
  sqlite3_result_blob64(context, blob->data(), blob->size(), SQLITE_TRANSIENT);
}

}  // namespace evalrun::results
