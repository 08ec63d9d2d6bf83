// evalrun verify on a tiny model: what it certifies, what it stores, and how it fails.
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Verify : public CommandTest {
 protected:
  ProgramResult verify(std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "verify", "-m",        tiny_model(), "--methods",  "pld:k=3", "--limit",
        "4",      "-n",        "24",         "--contexts", "2",       "--draws",
        "200",    "--prompts", "2",          "--samples",  "8",       "--sample-tokens",
        "12",     "--top-k",   "5",          "--db",       "r.db",    "--law-draws",
        "100000"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(std::move(arguments));
  }
  // Of greedy decoding alone, which takes no options of the other parts.
  ProgramResult verify_greedy(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"verify",  "-m",     tiny_model(), "--methods", "pld:k=3",
                                          "--parts", "greedy", "--limit",    "4",         "-n",
                                          "24",      "--db",   "r.db"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(std::move(arguments));
  }
};

TEST_F(Verify, CertifiesStoresAndShowsInTheReport) {
  const ProgramResult result = verify({"--out", "c.json", "--json"});
  // Whether the sampling control can be refused is a matter of this model's drafts.
  ASSERT_TRUE(result.exit_code == 0 || result.exit_code == 4) << result.err;
  const json out = json::parse(result.out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0]["arm"]["method"], "pld:k=3");
  EXPECT_EQ(out[0]["greedy"]["identical"], 4);
  EXPECT_EQ(out[0]["greedy"]["outcome"], "holds");
  EXPECT_EQ(out[0]["sampled"]["outcome"], "holds");
  EXPECT_EQ(out[0]["sampled"]["identical"], 4);
  EXPECT_EQ(out[0]["sampled"]["plain_decoding"]["equal"], 4);
  EXPECT_EQ(out[0]["grades"]["sampling"], "identical");
  EXPECT_EQ(out[0]["proven"], "greedy: identical; sampling T=1 top_k=5: identical");
  EXPECT_EQ(
      out[0]["shown"].get<std::string>(),
      fmt::format("greedy: identical over {} tokens; sampling T=1 top_k=5: identical over {} "
                  "tokens",
                  out[0]["greedy"]["tokens"].get<int>(), out[0]["sampled"]["tokens"].get<int>()));
  for (const char* part : {"law", "steps", "texts"})
    EXPECT_NEAR(out[0][part]["level"].get<double>(), 0.001 / 3, 1e-12) << part;
  EXPECT_EQ(out[0]["law"]["draws"], 200000);
  EXPECT_FALSE(out[0]["law"]["rejected"].get<bool>());
  EXPECT_FALSE(out[0]["steps"]["result"]["rejected"].get<bool>());
  EXPECT_FALSE(out[0]["texts"]["result"]["rejected"].get<bool>());
  EXPECT_FALSE(out[0]["texts"]["plain_against_plain"]["rejected"].get<bool>());
  EXPECT_EQ(json::parse(folder_.read("c.json")), out);
  const std::string text = verify({}).out;
  EXPECT_THAT(text, HasSubstr("4 / 0 / 0"));
  EXPECT_THAT(text, HasSubstr("They fail below p 0.00033, "));
  const ProgramResult table =
      run({"run", "-m", tiny_model(), "--methods", "pld:k=3", "--tasks", "samples", "--limit", "2",
           "-n", "8", "--no-aa", "--db", "r.db"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("shown lossless"));
  EXPECT_THAT(table.out, HasSubstr("greedy"));
}

TEST_F(Verify, OnlyThePartsAskedFor) {
  const auto parts = [&](const std::vector<std::string>& asked) {
    std::vector<std::string> arguments = {"verify",  "-m", tiny_model(), "--methods", "pld:k=3",
                                          "--limit", "2",  "--db",       "r.db",      "--json"};
    arguments.insert(arguments.end(), asked.begin(), asked.end());
    const ProgramResult result = run(arguments);
    std::vector<std::string> found;
    const json out = json::parse(result.out);
    for (const char* part : {"greedy", "sampled", "law", "steps", "texts"})
      if (out[0].contains(part)) found.emplace_back(part);
    return found;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(parts({"--parts", "greedy", "-n", "8"}), ElementsAre("greedy"));
  EXPECT_THAT(parts({"--parts", "sampled", "-n", "8", "--answers", "2", "--sampler", "gumbel"}),
              ElementsAre("sampled"));
  EXPECT_THAT(parts({"--parts", "law", "--contexts", "1", "--law-draws", "1000"}),
              ElementsAre("law"));
  EXPECT_THAT(parts({"--parts", "steps", "--contexts", "1", "--draws", "100", "--top-k", "5"}),
              ElementsAre("steps"));
  EXPECT_THAT(parts({"--parts", "texts", "--prompts", "1", "--samples", "4", "--sample-tokens", "8",
                     "--top-k", "5"}),
              ElementsAre("texts"));
}

TEST_F(Verify, FindsAPlantedFaultAndStoresNothing) {
  const ProgramResult greedy = verify_greedy({"--fault", "wrong-accept", "--json"});
  EXPECT_EQ(greedy.exit_code, 5) << greedy.err;
  const json out = json::parse(greedy.out);
  EXPECT_EQ(out[0]["outcome"], "fails");
  EXPECT_GT(out[0]["greedy"]["replay"]["differing"], 0);
  EXPECT_THAT(verify_greedy({"--fault", "wrong-accept"}).out,
              HasSubstr("first difference at token"));
  const ProgramResult table =
      run({"run", "-m", tiny_model(), "--methods", "pld:k=3", "--tasks", "samples", "--limit", "2",
           "-n", "8", "--no-aa", "--db", "r.db"});
  EXPECT_THAT(table.out, Not(HasSubstr("shown lossless")));
}

class VerifyAudit : public Verify {
 protected:
  VerifyAudit() { ::setenv("COLUMNS", "0", 1); }  // cells are not wrapped
  ~VerifyAudit() override { ::unsetenv("COLUMNS"); }
  // `method` drafts three tokens with a model.
  ProgramResult audit(const std::string& method, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"verify",  "-m",      tiny_model(), "--methods", method,
                                          "--parts", "sampled", "--limit",    "4",         "-n",
                                          "40",      "--db",    "r.db"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(VerifyAudit, FindsAFaultOfTheVerifier) {
  const std::string method = "sps:draft=layers:1,k=3";
  const ProgramResult honest = audit(method);
  EXPECT_EQ(honest.exit_code, 0) << honest.err;
  EXPECT_THAT(honest.out, HasSubstr("sampling T=1: decisions audited ("));
  EXPECT_THAT(honest.out, HasSubstr("; would find 0.0"));
  EXPECT_THAT(honest.out, HasSubstr("decisions made again"));
  EXPECT_THAT(honest.out, Not(HasSubstr("on the host")));
  EXPECT_THAT(honest.out, HasSubstr("Time of audits over that of the audited steps: " + method));
  EXPECT_THAT(honest.out, HasSubstr(", plain decoding "));
  const ProgramResult faulty = audit(method, {"--fault", "verify-temperature:80%"});
  EXPECT_EQ(faulty.exit_code, 5) << faulty.err;
  EXPECT_THAT(faulty.out, HasSubstr("first difference when sampling at token"));
  EXPECT_THAT(faulty.out, HasSubstr("the decision made again gives"));
}

// A certificate by another sampler stands beside the first, and each beside runs like it.
TEST_F(VerifyAudit, KeepsOneForEachSampler) {
  const std::string method = "sps:draft=layers:1,k=3";
  ASSERT_EQ(audit(method).exit_code, 0);
  const ProgramResult noise = audit(method, {"--sampler", "gumbel"});
  ASSERT_EQ(noise.exit_code, 0) << noise.err;
  EXPECT_THAT(noise.out, HasSubstr("sampling T=1 by gumbel: identical over "));
  const auto table = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "run", "-m", tiny_model(), "--methods", method, "--tasks", "samples",       "--limit",
        "1",   "-n", "8",          "--no-aa",   "--db", "r.db",    "--temperature", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(table({}), HasSubstr("sampling T=1: decisions audited ("));
  EXPECT_THAT(table({"--sampler", "gumbel"}), HasSubstr("sampling T=1 by gumbel: identical over "));
}

// tau beside the most that a lossless rule could keep.
TEST_F(VerifyAudit, SetsTauBesideTheBound) {
  const std::string method = "sps:draft=layers:1,k=3,verify=block";
  const ProgramResult result = audit(method, {"--bound", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json bound = json::parse(result.out)[0]["bound"];
  EXPECT_EQ(bound["answers"], 4);
  EXPECT_EQ(bound["prompts"], 4);
  EXPECT_GT(bound["steps"].get<int>(), 0);
  for (const char* name : {"tau", "most_tau", "first_kept", "most_first_kept"}) {
    EXPECT_GE(bound[name].get<double>(), 0) << name;
    EXPECT_LE(bound[fmt::format("{}_lo", name)].get<double>(), bound[name].get<double>()) << name;
  }
  EXPECT_NEAR(bound["tau_left"].get<double>(),
              bound["most_tau"].get<double>() - bound["tau"].get<double>(), 1e-12);
  EXPECT_FALSE(bound.contains("without_bound"));
  EXPECT_FALSE(json::parse(audit(method, {"--json"}).out)[0].contains("bound"));
  const std::string text = audit(method + ",pld:k=3", {"--bound"}).out;
  EXPECT_THAT(text, HasSubstr("at most"));
  EXPECT_THAT(text, HasSubstr("pld:k=3: no bound, drafts come without"));
}

// The whole model as its own draft: nothing is refused.
TEST_F(VerifyAudit, SaysWhyItIsInconclusive) {
  const std::string method = "sps:draft=layers:3,k=3";
  const ProgramResult result = audit(method, {"--json"});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out[0]["sampled"]["outcome"], "inconclusive");
  EXPECT_EQ(out[0]["sampled"]["refused"], 0);
  EXPECT_EQ(out[0]["sampled"]["why"], "no draft was refused");
  EXPECT_EQ(out[0]["shown"], "");
  EXPECT_THAT(audit(method).out,
              HasSubstr("decisions made again; inconclusive: no draft was refused"));
}

TEST_F(Verify, RefusesWhatItCannotTest) {
  expect_refused(verify({"--parts", "greedy,laws"}), 2, "law");
  expect_refused(verify_greedy({"--sampler", "gumbel"}), 2, "--sampler");
  expect_refused(verify_greedy({"--answers", "2"}), 2, "--answers");
  expect_refused(verify_greedy({"--bound"}), 2, "--bound");
  expect_refused(
      run({"verify", "-m", tiny_model(), "--methods", "sps:draft=layers:1,verify=gumbel"}), 2,
      "--sampler gumbel");
  expect_refused(verify({"--temperature", "0"}), 2, "--temperature 0");
  expect_refused(verify({"--fault", "wrong-accept:0%"}), 2, "wrong-accept:0%");
  expect_refused(verify_greedy({"--out", "no/such/folder/c.json"}), 7, "c.json");
  expect_refused(run({"verify", "-m", tiny_model(), "--methods", "ar"}), 2, "no method");
  expect_refused(run({"verify", "-m", tiny_model(), "--methods", "pdl"}), 2, "pld");
}

}  // namespace
}  // namespace evalrun::tests
