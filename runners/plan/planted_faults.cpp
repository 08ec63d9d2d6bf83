#include "runners/plan/planted_faults.h"

#include <algorithm>
#include <string_view>

#include "engine/base/error.h"
#include "methods/faults.h"
#include "methods/registration.h"

namespace evalrun::runners {
namespace {

constexpr std::string_view kPlainSlow = "ar-slow:", kAllSlow = "all-slow:";

}  // namespace

void check_fault_name(const std::string& fault) {
  std::vector<std::string> known = methods::known_faults();
  known.insert(known.end(), {"ar-slow:5%", "all-slow:5%"});
  const bool slow =
      fault.starts_with("slow:") || fault.starts_with(kPlainSlow) || fault.starts_with(kAllSlow);
  // How much is read when it is planted, which is before anything is measured, too.
  if (!(slow && fault.ends_with("%")) &&
      std::find(known.begin(), known.end(), fault) == known.end())
    throw base::usage_error(fmt::format("unknown fault '{}'", fault), base::suggest(fault, known));
}

std::map<std::string, std::string> planted_faults(const Suite& suite, const std::string& fault) {
  if (!suite.endpoints.empty())
    throw base::usage_error(
        fmt::format("suite {} measures servers: faults are planted in evalrun's own methods",
                    suite.name),
        "take a suite without endpoints, such as ci");
  if (suite.methods.size() < 2)
    throw base::usage_error(
        fmt::format("suite {} measures AR only: a fault is planted in another method", suite.name),
        "take a suite with a method such as pld");
  const bool plain = fault.starts_with(kPlainSlow), all = fault.starts_with(kAllSlow);
  // "slow:5%" of "ar-slow:5%".
  const std::string planted = plain || all ? fault.substr(fault.find('-') + 1) : fault;
  const std::string batch = batch_label(suite.batches.sizes.front(), suite.batches.mode);
  std::map<std::string, std::string> faults;
  if (plain || all) {
    faults["ar" + batch] = planted;
    if (suite.aa) faults["ar" + batch + " (A/A)"] = planted;
  }
  if (!plain) faults[methods::parse_method(suite.methods[1]).label() + batch] = planted;
  return faults;
}

}  // namespace evalrun::runners
