// Energy of the processor from counters as the kernel writes them, in a folder of the test's.
#include "runners/machine/processor_energy.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProcessorEnergy : public ::testing::Test {
 protected:
  void domain(const std::string& folder, const std::string& name, int64_t uj,
              int64_t range_uj = 1'000'000'000) {
    std::filesystem::create_directories(folder_.file("powercap/" + folder));
    folder_.write("powercap/" + folder + "/name", name + "\n");
    folder_.write("powercap/" + folder + "/energy_uj", std::to_string(uj) + "\n");
    folder_.write("powercap/" + folder + "/max_energy_range_uj", std::to_string(range_uj) + "\n");
  }
  EnergyReading read() const { return read_energy(folder_.file("powercap")); }
  tests::TempFolder folder_;
};

TEST_F(ProcessorEnergy, PackagesAndMemoryAreSummedAndPartsOfThemAreNot) {
  const auto at = [&](int64_t uj) {
    domain("intel-rapl:0", "package-0", 1'000'000 + uj);
    domain("intel-rapl:1", "package-1", 5'000'000 + 2 * uj);
    domain("intel-rapl:0:0", "core", 7 * uj);
    domain("intel-rapl:0:1", "dram", 3 * uj);
    domain("intel-rapl:2", "psys", 11 * uj);
    domain("intel-rapl-mmio:0", "package-0", 13 * uj);  // the same package by another way
    return read();
  };
  const EnergyReading before = at(0), after = at(500'000);
  EXPECT_EQ(before.domains.size(), 3u);
  EXPECT_THAT(before.refusal, IsEmpty());
  EXPECT_EQ(energy_between_mj(before, after), 500 + 1000 + 1500);
}

TEST_F(ProcessorEnergy, ACounterThatBeganAnewIsCarriedOn) {
  domain("intel-rapl:0", "package-0", 999'000'000, 1'000'000'000);
  const EnergyReading before = read();
  domain("intel-rapl:0", "package-0", 2'000'000, 1'000'000'000);
  EXPECT_EQ(energy_between_mj(before, read()), 3000);
  domain("intel-rapl:0", "package-0", 999'000'000, 0);
  const EnergyReading endless = read();
  domain("intel-rapl:0", "package-0", 2'000'000, 0);
  EXPECT_EQ(energy_between_mj(endless, read()), std::nullopt) << "it does not say where it ends";
}

TEST_F(ProcessorEnergy, ADomainThatCameOrWentGivesNone) {
  domain("intel-rapl:0", "package-0", 1000);
  const EnergyReading one = read();
  domain("intel-rapl:1", "package-1", 1000);
  EXPECT_EQ(energy_between_mj(one, read()), std::nullopt);
  EXPECT_EQ(energy_between_mj(read(), one), std::nullopt);
  EXPECT_EQ(energy_between_mj({}, {}), std::nullopt);
}

TEST_F(ProcessorEnergy, WhatCannotBeReadIsNamedWithARemedy) {
  EXPECT_THAT(read().refusal, HasSubstr("no counter of a processor package"));
  EXPECT_THAT(read().remedy, HasSubstr("virtual machines"));
  domain("intel-rapl:0", "package-0", 1000);
  domain("intel-rapl:0:0", "dram", 1000);
  const std::string closed = folder_.file("powercap/intel-rapl:0/energy_uj");
  std::filesystem::remove(closed);
  std::filesystem::create_directory(closed);  // unreadable for root, too
  EXPECT_THAT(read().domains, IsEmpty()) << "a part would look like the whole";
  EXPECT_THAT(read().refusal, HasSubstr("intel-rapl:0/energy_uj cannot be read"));
  EXPECT_THAT(read().remedy, HasSubstr("chmod a+r"));
}

}  // namespace
}  // namespace evalrun::runners
