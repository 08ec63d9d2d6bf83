// Names that other programs ask for: tables and views with their columns. After a wanted change:
// EVALRUN_UPDATE_GOLDEN=1 bin/store_test --gtest_filter=Schema.* && git diff tests/data/golden
#include <cstdlib>

#include "engine/base/text.h"
#include "tests/results/store_queries.h"
#include "tests/temp_folder.h"

namespace evalrun::results {
namespace {

TEST(Schema, TablesAndViewsKeepTheirColumns) {
  tests::TempFolder folder;
  const ResultStore store(folder.file("a.db"));
  std::string names;
  store.query(
      "SELECT s.type, s.name, group_concat(c.name, ' ') FROM sqlite_schema s, "
      "pragma_table_info(s.name) c WHERE s.type IN ('table', 'view') AND s.name NOT LIKE "
      "'sqlite%' GROUP BY s.type, s.name ORDER BY s.type, s.name",
      {}, [&](const Row& r) {
        names += fmt::format("{} {}: {}\n", r.text(0), r.text(1), r.text(2));
        return true;
      });
  const std::string path = EVALRUN_TEST_DATA "/golden/schema.txt";
  if (std::getenv("EVALRUN_UPDATE_GOLDEN") != nullptr) base::write_file_atomic(path, names);
  EXPECT_EQ(base::read_file(path), names);
}

}  // namespace
}  // namespace evalrun::results
