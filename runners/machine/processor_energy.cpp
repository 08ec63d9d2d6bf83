#include "runners/machine/processor_energy.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace evalrun::runners {
namespace {

constexpr const char* kPowercap = "/sys/class/powercap";

std::optional<int64_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  return in >> value && value >= 0 ? std::optional(value) : std::nullopt;
}

std::string line_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

bool counts(const std::string& domain) { return domain.starts_with("package") || domain == "dram"; }

}  // namespace

EnergyReading read_energy() {
  const char* other = std::getenv("EVALRUN_POWERCAP");
  return read_energy(other != nullptr && *other != '\0' ? other : kPowercap);
}

EnergyReading read_energy(const std::string& folder) {
  EnergyReading reading;
  std::error_code failed;
  std::string closed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::filesystem::path& domain = entry.path();
    if (!domain.filename().string().starts_with("intel-rapl:")) continue;  // AMD's, too
    if (!counts(line_in(domain / "name"))) continue;
    if (const auto uj = number_in(domain / "energy_uj"))
      reading.domains[domain.filename().string()] = {
          *uj, number_in(domain / "max_energy_range_uj").value_or(0)};
    else
      closed = (domain / "energy_uj").string();
  }
  if (!closed.empty()) {  // a part would look like the whole
    reading.domains.clear();
    reading.refusal = fmt::format("{} cannot be read", closed);
    reading.remedy = fmt::format(
        "root can allow it until the next boot: chmod a+r {}/intel-rapl:*/energy_uj", folder);
  } else if (reading.domains.empty()) {
    reading.refusal = fmt::format("{} has no counter of a processor package", folder);
    reading.remedy =
        "virtual machines and containers rarely see one: measure on the machine itself";
  }
  return reading;
}

std::optional<int64_t> energy_between_mj(const EnergyReading& before, const EnergyReading& after) {
  if (before.domains.empty() || before.domains.size() != after.domains.size()) return std::nullopt;
  int64_t uj = 0;
  for (const auto& [domain, then] : before.domains) {
    const auto now = after.domains.find(domain);
    if (now == after.domains.end()) return std::nullopt;
    int64_t used = now->second.uj - then.uj;
    if (used < 0) used += then.range_uj;  // it began anew
    if (used < 0) return std::nullopt;
    uj += used;
  }
  return uj / 1000;
}

}  // namespace evalrun::runners
