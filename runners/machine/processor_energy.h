// Energy of the processor and its memory, from the kernel's RAPL counters (/sys/class/powercap).
// They cover whole packages: what else runs there is counted, too. Virtual machines rarely have
// them, and most kernels let root alone read them (CVE-2020-8694).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace evalrun::runners {

struct EnergyCounter {
  int64_t uj = 0;        // since some moment; begins again at 0 after `range_uj`
  int64_t range_uj = 0;  // 0 = does not say
};

// Domains "package-N", and "dram" where it is one of its own. Parts of a package (core, uncore) and
// sums over the machine (psys) are left out.
struct EnergyReading {
  std::map<std::string, EnergyCounter> domains;  // by folder
  std::string refusal;                           // why there are none
  std::string remedy;
};
// Of EVALRUN_POWERCAP, or of /sys/class/powercap.
EnergyReading read_energy();
EnergyReading read_energy(const std::string& folder);

// nullopt where either reading lacks a domain of the other, or has none. A counter that began anew
// once is taken for that; short times only (a package fills it in minutes).
std::optional<int64_t> energy_between_mj(const EnergyReading& before, const EnergyReading& after);

}  // namespace evalrun::runners
