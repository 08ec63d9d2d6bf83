#include "tests/repo/include_cycles.h"

#include <gmock/gmock.h>

#include "engine/base/text.h"
#include "tests/repo/source_tree.h"

namespace evalrun::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Rings that are left. A new one fails, and so does a line here whose ring is gone.
const std::vector<std::vector<std::string>> kLeft = {
    {"results/migrations", "results/store"},
    {"tests/methods/support/adapters", "tests/methods/support/corpora",
     "tests/methods/support/harness"}};

TEST(IncludeCycles, NoOthersThanThose) {
  std::map<std::string, std::string> texts;
  for (const std::string& file : source_files({".h", ".cpp", ".cu"}))
    texts[file] = base::read_file(absolute(file));
  EXPECT_EQ(include_cycles(texts), kLeft);
}

TEST(IncludeCycles, ARingIsSeenOnce) {
  EXPECT_THAT(include_cycles({{"r/a.h", "#include \"r/b.h\"\n"},
                              {"r/b.cpp", "#include \"r/b.h\"\n#include \"r/c.h\"\n"},
                              {"r/b.h", ""},
                              {"r/c.h", "#include \"r/a.h\"\n"},
                              {"r/d.h", "#include \"r/a.h\"\n"}}),
              ElementsAre(ElementsAre("r/a", "r/b", "r/c")));
}

TEST(IncludeCycles, AHeaderAndItsSourceAreOneUnit) {
  EXPECT_THAT(include_cycles({{"r/a.cpp", "#include \"r/a.h\"\n#include \"r/b.h\"\n"},
                              {"r/a.h", ""},
                              {"r/b.h", "#include <vector>\n"}}),
              IsEmpty());
}

}  // namespace
}  // namespace evalrun::tests
