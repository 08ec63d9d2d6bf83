// The measured figures about the gate: what the self-test prints, and that those in the repository
// are what the gate promises.
#include "runners/cli/gate/gate_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const Json& kind(const Json& study, const std::string& name) {
  for (const Json& k : study["kinds"])
    if (k["kind"] == name) return k;
  throw base::Error(base::ExitCode::kData, "the study has no kind " + name, "");
}

double share(const Json& k, const char* outcome) {
  return k[outcome].get<double>() / k["decisions"].get<double>();
}

TEST(GateStudy, TheGateKeepsWhatItPromises) {
  const Json& study = gate_study();
  const Json &unchanged = kind(study, "unchanged"), &slow = kind(study, "slow:5%");
  EXPECT_GE(unchanged["decisions"], 200);
  EXPECT_GE(unchanged["cross_process"], 20);
  EXPECT_LE(share(unchanged, "red"), 0.05);
  EXPECT_EQ(unchanged["wrong_output"], 0);
  EXPECT_GE(slow["decisions"], 100);
  EXPECT_GE(slow["cross_process"], 20);
  EXPECT_GE(share(slow, "red"), 0.95);
  for (const char* fault : {"wrong-accept", "miscount"})
    EXPECT_EQ(kind(study, fault)["wrong_output"], kind(study, fault)["decisions"]) << fault;
  EXPECT_EQ(kind(study, "all-slow:5%")["red"], 0);
}

TEST(GateStudy, TextOfTheSelfTest) {
  const Json study = Json::parse(R"({"date": "2026-01-02", "cores": 2, "processes": 25,
    "model": "tiny", "suite": "ci", "kinds": [
      {"kind": "unchanged", "decisions": 200, "red": 2},
      {"kind": "slow:5%", "decisions": 100, "red": 97},
      {"kind": "miscount", "decisions": 9, "red": 0}]})");
  const std::string text = gate_study_text(study);
  EXPECT_THAT(text, HasSubstr("on 2026-01-02 (2 cores, 25 processes; tiny; ci)"));
  // Wilson: 2 of 200 is 0.0027 to 0.0357.
  EXPECT_THAT(text, HasSubstr("\n  false alarms: 2 of 200, 1.0 % [0.3, 3.6]"));
  EXPECT_THAT(text, HasSubstr("\n  slowdowns of 5 % found: 97 of 100, 97.0 % [91.5, 99.0]"));
  EXPECT_THAT(text, testing::Not(HasSubstr("miscount")));
}

}  // namespace
}  // namespace evalrun::cli
