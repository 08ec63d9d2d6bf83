// The measured figures about the gate (scripts/gate-study, docs/gate.md) are what it
// promises.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::cli {
namespace {

using StudyJson = nlohmann::ordered_json;

const StudyJson& kind_of(const StudyJson& study, const std::string& name) {
  for (const StudyJson& k : study["kinds"])
    if (k["kind"] == name) return k;
  throw base::Error(base::ExitCode::kData, "the study has no kind " + name, "");
}

double share_of(const StudyJson& k, const char* outcome) {
  return k[outcome].get<double>() / k["decisions"].get<double>();
}

TEST(GateStudy, TheGateKeepsWhatItPromises) {
  const StudyJson study = StudyJson::parse(base::read_file(EVALRUN_TEST_DATA "/gate_study.json"));
  const StudyJson &unchanged = kind_of(study, "unchanged"), &slow = kind_of(study, "slow:5%");
  EXPECT_GE(unchanged["decisions"], 200);
  EXPECT_GE(unchanged["cross_process"], 20);
  EXPECT_LE(share_of(unchanged, "red"), 0.05);
  EXPECT_EQ(unchanged["wrong_output"], 0);
  EXPECT_GE(slow["decisions"], 100);
  EXPECT_GE(slow["cross_process"], 20);
  EXPECT_GE(share_of(slow, "red"), 0.95);
  for (const char* fault : {"wrong-accept", "miscount"})
    EXPECT_EQ(kind_of(study, fault)["wrong_output"], kind_of(study, fault)["decisions"]) << fault;
  EXPECT_EQ(kind_of(study, "all-slow:5%")["red"], 0);
}

}  // namespace
}  // namespace evalrun::cli
