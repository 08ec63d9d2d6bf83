// Turns as rows: their steps, draft nodes, divergences, and how they fared in a batch. Internal to
// results/.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "results/records.h"
#include "results/sqlite.h"

namespace evalrun::results {

std::string token_blob(const std::vector<int32_t>& tokens);  // as stored: int32 little-endian

// Inserts turns; its statements are prepared once. `path` must outlive the object.
class TurnRows {
 public:
  explicit TurnRows(const std::string& path) : path_(path) {}
  // Turn `index` of a generation. `batch_call`: GenerationRecord. Within a transaction of the
  // caller.
  void insert(sqlite3* db, int64_t generation_id, size_t index, const TurnRecord& turn,
              const std::string& text, int64_t batch_call);
  // An error in the middle leaves a statement half bound; and all go before their connection.
  void forget_statements();

 private:
  using Slot = std::unique_ptr<Statement>;
  Statement& prepared(sqlite3* db, Slot& slot, std::string_view sql);
  void insert_steps(sqlite3* db, int64_t turn_id, const TurnRecord& turn);
  void insert_batch(sqlite3* db, int64_t turn_id, const BatchTurnRecord& batch, int64_t call);
  void insert_endpoint(sqlite3* db, int64_t turn_id, const EndpointTurnRecord& server);

  const std::string& path_;
  Slot turn_, step_, node_, divergence_, batch_turn_, batch_step_, endpoint_turn_;
};

}  // namespace evalrun::results
