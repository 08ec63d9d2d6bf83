#include "runners/machine/machine_identity.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

std::string machine_name() {
  if (const char* given = std::getenv("EVALRUN_MACHINE"); given != nullptr && *given != '\0')
    return given;
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || *name == '\0') return "unknown";
  return name;
}

}  // namespace

results::MachineRecord this_machine(const std::map<std::string, std::string>& environment,
                                    const std::string& device, const std::string& isa,
                                    int threads) {
  results::MachineRecord machine;
  machine.name = machine_name();
  machine.facts = environment;
  if (!device.empty()) {
    machine.facts["device"] = device;
    machine.facts["isa"] = isa;
    machine.facts["threads"] = std::to_string(threads);
  }
  nlohmann::json identity = {{"host", machine.name}};
  for (const char* name :
       {"cpu", "cores", "cores_allowed", "numa_nodes", "gpu", "device", "isa", "threads"})
    if (const auto fact = machine.facts.find(name); fact != machine.facts.end())
      identity[name] = fact->second;
  machine.key =
      base::sha256_hex(identity.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return machine;
}

}  // namespace evalrun::runners
