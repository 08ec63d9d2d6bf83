// Creation and migration of the schema. Internal to results/.
#pragma once
#include <sqlite3.h>

#include <string>

namespace evalrun::results {

// Stored in the file header (PRAGMA application_id): tells our databases from other SQLite files.
inline constexpr int kApplicationId = 0x65767231;  // "evr1"

// Makes the open database one of kSchemaVersion: creates the schema in an empty file, migrates an
// older one (after a copy to PATH.bak-v<N>), refuses a newer one and a foreign one. With
// `writable` false nothing is changed, and a version before kOldestReadable is refused, too. Throws
// data_error.
void prepare_schema(sqlite3* db, const std::string& path, bool writable);

}  // namespace evalrun::results
