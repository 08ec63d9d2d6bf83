#include "runners/machine/build_info.h"

#include "build_commit.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/cuda/runtime/devices.h"

namespace evalrun::runners {
namespace {

BuildInfo make_build_info() {
  BuildInfo info;
  info.version = EVALRUN_VERSION;
  info.commit = EVALRUN_COMMIT;
  info.build_type = EVALRUN_BUILD_TYPE;
  info.compiler = EVALRUN_COMPILER;
  info.sanitizers = EVALRUN_SANITIZERS;
  info.cuda = engine::cuda::compiled_in();
  info.id = info.commit;
  if (info.commit == "unknown" || info.commit.ends_with("-dirty"))
    info.id += "+" + base::sha256_file("/proc/self/exe").substr(0, 16);
  return info;
}

}  // namespace

const BuildInfo& build_info() {
  static const BuildInfo info = make_build_info();
  return info;
}

}  // namespace evalrun::runners
