#include "tests/repo/include_rules.h"

#include <gmock/gmock.h>

#include "engine/base/text.h"
#include "tests/repo/source_tree.h"

namespace evalrun::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(IncludeRules, TheTreeKeepsThem) {
  const auto files = source_files({".h", ".cpp", ".cu", ".cuh"});
  ASSERT_GT(files.size(), 50u) << "the walk over the tree finds too little to prove anything";
  for (const std::string& file : files)
    EXPECT_THAT(check_includes(file, base::read_file(absolute(file))), IsEmpty());
}

// The checker itself: each breach it exists for is seen, at its line.
TEST(IncludeRules, BreachesAreSeen) {
  EXPECT_THAT(check_includes("methods/a.cpp", "// x\n#include \"results/store.h\"\n"),
              ElementsAre("methods/a.cpp:2: methods/ may not include \"results/store.h\""));
  EXPECT_THAT(check_includes("methods/a.cpp", "#include \"results/records.h\"\n"), IsEmpty());
  EXPECT_THAT(check_includes("engine/base/a.h", "#include \"engine/session.h\"\n"),
              ElementsAre(HasSubstr("engine/base/ may not include")));
  EXPECT_THAT(check_includes("datasets/a.cpp", "#include \"engine/session.h\"\n"),
              ElementsAre(HasSubstr("datasets/ may not include")));
  EXPECT_THAT(check_includes("runners/measure/runner.cpp", "#include \"reports/table.h\"\n"),
              ElementsAre(HasSubstr("runners/measure/ may not include")));
  EXPECT_THAT(
      check_includes("runners/cli/measure/run/cmd_run.cpp", "#include \"reports/table.h\"\n"),
      IsEmpty());
  EXPECT_THAT(check_includes("reports/a.cpp", "#include \"tests/repo/source_tree.h\"\n"),
              ElementsAre(HasSubstr("reports/ may not include")));
}

TEST(IncludeRules, ThirdPartyBreachesAreSeen) {
  EXPECT_THAT(check_includes("engine/session.cpp", "#include <cuda_runtime.h>\n"),
              ElementsAre(HasSubstr("engine/ may not use CUDA")));
  EXPECT_THAT(check_includes("engine/cuda/runtime/devices.cu", "#include <cuda_runtime.h>\n"),
              IsEmpty());
  EXPECT_THAT(check_includes("engine/a.cpp", "#  include <nlohmann/json.hpp>\n"),
              ElementsAre(HasSubstr("engine/ may not use nlohmann")));
  EXPECT_THAT(check_includes("methods/a.cpp", "#include <absl/any.hpp>\n"),
              ElementsAre(HasSubstr("not a library we know")));
  EXPECT_THAT(check_includes("methods/a.cpp", "#include <vector>\n#include <sys/mman.h>\n"),
              IsEmpty());
}

TEST(IncludeRules, PathsStartAtTheRoot) {
  EXPECT_THAT(check_includes("methods/a.cpp", "#include \"token_tree.h\"\n"),
              ElementsAre(HasSubstr("from the root")));
  EXPECT_THAT(check_includes("methods/a.cpp", "#include \"../engine/session.h\"\n"),
              ElementsAre(HasSubstr("from the root")));
  EXPECT_THAT(check_includes("plugins/a.cpp", "#include <vector>\n"),
              ElementsAre(HasSubstr("no include rule covers")));
}

}  // namespace
}  // namespace evalrun::tests
