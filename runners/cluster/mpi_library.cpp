#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/install_paths.h"
#include "runners/cluster/messages.h"

namespace evalrun::runners {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "evalrun-mpi.so";

// Beside the program in a build folder, in ../libexec/evalrun where it is installed.
std::string library_path() {
  std::error_code ignored;
  const fs::path beside = base::program_folder() / kLibrary;
  if (fs::exists(beside, ignored)) return beside.string();
  return base::shipped_path(fmt::format("libexec/evalrun/{}", kLibrary)).string();
}

base::Error no_mpi(const std::string& why) {
  return {base::ExitCode::kEnvironment, fmt::format("--mpi: {}", why),
          "install MPI (Debian: libopenmpi-dev openmpi-bin) and build again (docs/slurm.md); or "
          "measure shards without it: --shard 1/4, then evalrun merge"};
}

}  // namespace

std::unique_ptr<Messages> open_mpi() {
  const std::string path = library_path();
  if (path.empty()) throw no_mpi("this build of evalrun has no MPI");
  // Global: parts that MPI loads later look for its names. Never closed: MPI cannot start twice.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw no_mpi(::dlerror());
  using Open = Messages* (*)(std::string*);
  const auto open = reinterpret_cast<Open>(::dlsym(library, "evalrun_mpi_open"));
  if (open == nullptr) throw no_mpi(fmt::format("{} is of another version", path));
  std::string why;
  std::unique_ptr<Messages> messages(open(&why));
  if (messages == nullptr) throw no_mpi(why);
  return messages;
}

Message wait_for_message(Messages& messages) {
  for (;;) {
    if (std::optional<Message> message = messages.poll()) return *message;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace evalrun::runners
