// evalrun tune tree on a tiny model with random heads, evalrun tune parameters and tune method on
// one: what they count and print. No test looks at a time.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

class TuneParameters : public CommandTest {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 8; ++i)
      lines += fmt::format(R"({{"id": "{}", "turns": ["ab{}cab{}cab{}c"]}})", i, i, i, i) + "\n";
    folder_.write("prompts.jsonl", lines);
  }
  ProgramResult tune(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"tune",
                                          "parameters",
                                          "-m",
                                          tiny_model(),
                                          "--task",
                                          "jsonl:prompts.jsonl",
                                          "-n",
                                          "12",
                                          "--db",
                                          "t.db",
                                          "-t",
                                          "1",
                                          "--json",
                                          "--method",
                                          "pld:ngram=2",
                                          "--space",
                                          "k=1..4,match=first|recent"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(TuneParameters, ChoosesOnHalfJudgesOnTheOtherAndGoesOnFromWhatIsStored) {
  const ProgramResult first = tune({});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const json out = json::parse(first.out);
  EXPECT_EQ(out["prompts_judged_on"], 4);
  EXPECT_EQ(out["prompts_chosen_on"], 4);
  EXPECT_EQ(out["points"], 8);
  EXPECT_GE(out["tried"].get<int>(), 5) << "four values of k, then the other match";
  EXPECT_LE(out["tried"].get<int>(), 8);
  EXPECT_EQ(out["settings"][0]["method"], out["method"]);
  for (const json& setting : out["settings"]) {
    EXPECT_GE(setting["tau"].get<double>(), 1);
    EXPECT_LE(setting["speedup_lo"].get<double>(), setting["speedup"].get<double>());
    EXPECT_GE(setting["speedup_hi"].get<double>(), setting["speedup"].get<double>());
  }
  // Times of a model this small change from race to race, so that two parameters may use up their
  // rounds. A single one is searched when its values have raced once.
  const ProgramResult one =
      run({"tune", "parameters", "-m", tiny_model(), "--task", "jsonl:prompts.jsonl", "-n", "12",
           "--db", "one.db", "-t", "1", "--json", "--method", "pld:ngram=2", "--space", "k=1..4"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(json::parse(one.out)["finished"], true);
  // Nothing is measured again, so that every figure is the same.
  const ProgramResult again = tune({});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
}

TEST_F(TuneParameters, SaysWhatItCannotSearch) {
  EXPECT_THAT(tune({"--limit", "4"}).err, Not(HasSubstr("error")));
  const auto refused = [&](const std::vector<std::string>& words, const std::string& named) {
    std::vector<std::string> arguments = {"tune",   "parameters",          "-m",   tiny_model(),
                                          "--task", "jsonl:prompts.jsonl", "--db", "t.db"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    expect_refused(run(arguments), 2, named);
  };
  refused({"--method", "pld"}, "--space");
  refused({"--method", "pld", "--space", "k=3"}, "nothing to choose from");
  refused({"--method", "pld", "--space", "k=3..9,speed=1..2"}, "'speed'");
  refused({"--method", "pld", "--space", "min_ngram=4..6"}, "no value of min_ngram");
}

class TuneMethod : public TuneParameters {
 protected:
  ProgramResult choose(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "tune", "method", "-m", tiny_model(), "--tasks", "jsonl:prompts.jsonl",
        "-n",   "12",     "-t", "1",          "--db",    "t.db"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  ProgramResult measure_auto(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "run",  "-m",      tiny_model(), "--tasks",   "jsonl:prompts.jsonl",
        "-n",   "4",       "-t",         "1",         "-w",
        "0",    "--limit", "1",          "--methods", "auto",
        "--db", "r.db",    "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(TuneMethod, ChoosesConfirmsKeepsAndGoesOnFromWhatIsStored) {
  expect_refused(measure_auto({}), 2, "evalrun tune method --tasks jsonl:prompts.jsonl");
  const ProgramResult first = choose({"--methods", "pld:ngram=2,suffix", "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const json out = json::parse(first.out);
  ASSERT_EQ(out["methods"].size(), 2u);
  EXPECT_EQ(out["methods"][0]["method"], "pld:ngram=2");
  EXPECT_EQ(out["rounds"][0]["prompts"], 4);
  EXPECT_EQ(out["finished"], true);
  if (out["method"] != "ar") {
    EXPECT_EQ(out["confirmed"]["method"], out["method"]);
    EXPECT_GT(out["confirmed"]["speedup_lo"].get<double>(), 1);
  } else if (!out["confirmed"].is_null()) {
    EXPECT_LE(out["confirmed"]["speedup_lo"].get<double>(), 1);
  }
  // Nothing is measured again, so that every figure is the same.
  EXPECT_EQ(choose({"--methods", "pld:ngram=2,suffix", "--json"}).out, first.out);
  const ProgramResult chosen = measure_auto({});
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_THAT(chosen.out, HasSubstr("auto = " + out["method"].get<std::string>()));
  // A certificate is of what it stands for.
  const ProgramResult verified =
      run({"verify", "-m", tiny_model(), "--tasks", "jsonl:prompts.jsonl", "-t", "1", "--methods",
           "auto", "--parts", "greedy", "--limit", "2", "-n", "4", "--db", "v.db", "--json"});
  if (out["method"] == "ar")
    expect_refused(verified, 2, "method auto stands for plain decoding here");
  else
    EXPECT_THAT(verified.out, HasSubstr("auto = " + out["method"].get<std::string>()))
        << verified.err;
  expect_refused(measure_auto({"--kv-dtype", "int8"}), 2, "another KV cache");
  expect_refused(measure_auto({"--batch", "1,2"}), 2, "--batch 1");
}

// Trained drafters of this model are candidates, too, and it has none.
TEST_F(TuneMethod, HasCandidatesOfItsOwn) {
  const ProgramResult result = choose({"--limit", "4", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["methods"].size(), 5u) << out["methods"];
  EXPECT_THAT(out["left_out"].dump(), AllOf(HasSubstr("eagle2"), HasSubstr("medusa")));
}

TEST_F(TuneMethod, SaysWhatItCannotChooseFrom) {
  expect_refused(choose({"--methods", "ar"}), 2, "nothing to choose from");
  expect_refused(choose({"--methods", "auto"}), 2, "auto");
  expect_refused(choose({"--methods", "pad"}), 2, "changes the answers");
}

}  // namespace
}  // namespace evalrun::tests
