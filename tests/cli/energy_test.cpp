// run --energy on machines whose processor has counters of energy, or none: a folder of the test's
// stands for the kernel's.
#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

class Energy : public CommandTest {
 protected:
  void SetUp() override {
    write_prompts(folder_, 1);
    std::filesystem::create_directory(folder_.file("powercap"));
  }
  ProgramResult on_this_machine(const std::vector<std::string>& arguments) {
    std::string line = "EVALRUN_POWERCAP=powercap";
    for (const std::string& word : evalrun_command(arguments)) line += " '" + word + "'";
    return run_command_in(folder_, {"/bin/sh", "-c", line});
  }
};

TEST_F(Energy, IsRefusedBeforeAnythingIsMeasured) {
  expect_refused(on_this_machine(run_arguments(4, {"--energy"})), 6,
                 "--energy: powercap has no counter of a processor package");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("r.db")));
  EXPECT_EQ(on_this_machine(run_arguments(4, {})).exit_code, 0) << "nobody asked for it";
}

TEST_F(Energy, IsStoredWhereItCanBeRead) {
  folder_.write("powercap/intel-rapl:0/name", "package-0\n");
  folder_.write("powercap/intel-rapl:0/energy_uj", "12345678\n");
  folder_.write("powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
  const ProgramResult measured = on_this_machine(run_arguments(4, {"--energy"}));
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const json shown = json::parse(run({"show", "1", "--json", "--db", "r.db"}).out);
  EXPECT_EQ(shown["clock"]["energy_mj"], 0) << "this counter stands still";
  EXPECT_THAT(on_this_machine({"doctor", "-m", tiny_model()}).out, HasSubstr("intel-rapl:0"));
}

}  // namespace
}  // namespace evalrun::tests
