// evalrun doctor.
#include <set>

#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using Doctor = CommandTest;

json finding(const json& report, const std::string& name) {
  for (const json& f : report["checks"])
    if (f["name"] == name) return f;
  ADD_FAILURE() << "no finding '" << name << "' in " << report;
  return {};
}

TEST_F(Doctor, FitWithAModel) {
  const ProgramResult result = run({"doctor", "-m", tiny_model(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(finding(report, "bit identity")["level"], "ok");
  for (const char* name :
       {"build", "processor", "memory", "harness overhead per step", "memory read bandwidth",
        "instruction set paths", "NUMA nodes", "sandbox", "Python", "Rust"})
    EXPECT_FALSE(finding(report, name)["value"].get<std::string>().empty()) << name;
  EXPECT_THAT(
      finding(report, "instruction set paths")["value"].get<std::string>(),
      ::testing::AllOf(::testing::HasSubstr("reference"), ::testing::HasSubstr("chosen: ")));
  EXPECT_EQ(run({"doctor", "-m", tiny_model()}).exit_code, 0);
}

TEST_F(Doctor, SaysWhatGpusThereAre) {
  const ProgramResult result = run_command_in(
      folder_, {"/bin/sh", "-c",
                std::string("EVALRUN_NVML=") + EVALRUN_FAKE_NVML + " " + evalrun_command({})[0] +
                    " doctor -m " + tiny_model() + " --json"});
  const json report = json::parse(result.out);
  const std::string cuda = finding(report, "CUDA")["value"];
  // Without a GPU, or without CUDA, the driver's list is all there is.
  if (cuda.starts_with("cannot be used")) {
    EXPECT_EQ(finding(report, "GPU")["value"], "Fake GPU 80GB, driver 530.41");
    EXPECT_FALSE(finding(report, "CUDA")["hint"].get<std::string>().empty());
  } else {  // one that the library in its place does not know
    EXPECT_THAT(finding(report, "cuda:0")["value"].get<std::string>(),
                ::testing::HasSubstr("clocks and power not available"));
  }
}

TEST_F(Doctor, RunsNoProgramsWithoutASandbox) {
  const ProgramResult result = run_command_in(
      folder_, {"/bin/sh", "-c", "PATH=/nowhere " + evalrun_command({})[0] + " doctor --code"});
  EXPECT_EQ(result.exit_code, 6) << result.out;
  EXPECT_THAT(result.err, ::testing::HasSubstr("apt-get install bubblewrap"));
  EXPECT_EQ(run({"doctor", "--code", "--jobs", "0"}).exit_code, 2);
}

TEST_F(Doctor, SaysWhatMustBeMended) {
  const ProgramResult no_model = run({"doctor", "--json"});
  EXPECT_EQ(no_model.exit_code, 6);
  const json model = finding(json::parse(no_model.out), "model");
  EXPECT_EQ(model["level"], "PROBLEM");
  EXPECT_THAT(model["hint"].get<std::string>(), ::testing::HasSubstr("evalrun data model"));
  // Where there is a sandbox, hostile programs have been tried in it.
  std::set<std::string> names;
  const json report = json::parse(no_model.out);
  for (const json& f : report["checks"]) names.insert(f["name"]);
  EXPECT_EQ(names.contains("sandbox self-test"), finding(report, "sandbox")["level"] == "ok");
  const ProgramResult no_path = run_command_in(
      folder_,
      {"sh", "-c",
       "EVALRUN_ISA=mmx " + evalrun_command({})[0] + " doctor -m " + tiny_model() + " --json"});
  EXPECT_EQ(no_path.exit_code, 6);
  const json path = finding(json::parse(no_path.out), "instruction set paths");
  EXPECT_EQ(path["level"], "PROBLEM");
  EXPECT_THAT(
      path["value"].get<std::string>(),
      ::testing::AllOf(::testing::HasSubstr("; chosen: none: "), ::testing::HasSubstr("mmx")));
  EXPECT_EQ(path["hint"], "unset EVALRUN_ISA or name one of these");
  folder_.write("text.db", "no database at all, but long enough to be looked at by a reader\n");
  const ProgramResult no_database =
      run({"doctor", "-m", tiny_model(), "--db", "text.db", "--json"});
  EXPECT_EQ(no_database.exit_code, 6);
  EXPECT_EQ(finding(json::parse(no_database.out), "result database")["level"], "PROBLEM");
}

}  // namespace
}  // namespace evalrun::tests
