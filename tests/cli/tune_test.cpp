// evalrun tune tree on a tiny model with random heads: what it counts and prints. No test looks at
// a time.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

class TuneTree : public CommandTest {
 protected:
  ProgramResult tune(const std::vector<std::string>& more) {
    const std::string adapter = std::string(EVALRUN_TEST_DATA) + "/adapters/medusa.safetensors";
    std::vector<std::string> arguments = {
        "tune",       "tree",     "-m",
        tiny_model(), "--method", "medusa:any_target=true,dtype=f32,adapter=" + adapter,
        "--limit",    "4",        "-n",
        "48"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

// Thirty first choices and what follows three of them.
std::string wide_tree() {
  std::string paths;
  for (int rank = 0; rank < 30; ++rank)
    paths += (rank == 0 ? "" : "+") + std::to_string(rank) + (rank > 9 ? "." : "");
  for (const char* parent : {"0", "1", "2"})
    for (int rank = 0; rank < 10; ++rank) paths += fmt::format("+{}{}", parent, rank);
  return paths;
}

TEST_F(TuneTree, CountsOnHalfAndJudgesOnTheOther) {
  const ProgramResult result = tune({"--wide", wide_tree(), "--nodes", "6", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["prompts_chosen_on"], 2);
  EXPECT_EQ(out["prompts_judged_on"], 2);
  EXPECT_GT(out["steps_counted"], 10);
  ASSERT_FALSE(out["trees"].empty());
  double expected = 1;
  int nodes = 0;
  for (const json& tree : out["trees"]) {
    EXPECT_GT(tree["nodes"], nodes);
    EXPECT_GE(tree["tau_expected"], expected) << "each tree holds the one before";
    EXPECT_GE(tree["tau"], 1);
    nodes = tree["nodes"], expected = tree["tau_expected"];
  }
  EXPECT_THAT(out["method"].get<std::string>(), HasSubstr("medusa:any_target=true"));
  EXPECT_THAT(out["method"].get<std::string>(), HasSubstr("tree="));
}

TEST_F(TuneTree, SaysWhatItCannotTune) {
  const auto refused = [&](const std::string& method) {
    const ProgramResult result =
        run({"tune", "tree", "-m", tiny_model(), "--method", method, "--limit", "4"});
    EXPECT_EQ(result.exit_code, 2) << method;
    return result.err;
  };
  EXPECT_THAT(refused("pld"), HasSubstr("tree"));
  EXPECT_THAT(refused("medusa"), HasSubstr("scripts/train medusa"));
  EXPECT_THAT(refused("nothing"), HasSubstr("nothing"));
}

}  // namespace
}  // namespace evalrun::tests
