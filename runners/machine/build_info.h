// Where this binary comes from.
#pragma once
#include <string>

namespace evalrun::runners {

struct BuildInfo {
  std::string version;  // of the project
  std::string commit;   // `git describe --always --dirty`, taken when the binary was built
  // `commit`; for builds that the commit does not identify (local changes, no git) the hash of the
  // executable is added, so that two such builds never share a run.
  std::string id;
  std::string build_type, compiler, sanitizers;
  bool cuda = false;
};
const BuildInfo& build_info();

}  // namespace evalrun::runners
