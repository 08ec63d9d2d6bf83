// Files that come with the program are found from where it lies, in a build folder and anywhere
// else.
#include "engine/base/install_paths.h"

#include <gtest/gtest.h>

#include "tests/temp_folder.h"

namespace evalrun::base {
namespace {
namespace fs = std::filesystem;

TEST(InstallPaths, ShippedFilesMoveWithTheProgram) {
  const tests::TempFolder folder;
  const fs::path root = fs::canonical(folder.path());
  folder.write("before/share/evalrun/adapters/a.safetensors", "");
  fs::create_directories(root / "before/bin");
  EXPECT_EQ(shipped_path(root / "before/bin", "share/evalrun/adapters"),
            root / "before/share/evalrun/adapters");
  fs::rename(root / "before", root / "after");
  EXPECT_EQ(shipped_path(root / "after/bin", "share/evalrun/adapters"),
            root / "after/share/evalrun/adapters");
  EXPECT_EQ(shipped_path(root / "before/bin", "share/evalrun/adapters"), "");
  EXPECT_EQ(shipped_path(root / "after/bin", "share/evalrun/nothing"), "");
  EXPECT_EQ(shipped_path("", "share/evalrun/adapters"), "");
}

TEST(InstallPaths, LinksAreFollowed) {
  const tests::TempFolder folder;
  const fs::path root = fs::canonical(folder.path());
  folder.write("source/adapters/a.safetensors", "");
  fs::create_directories(root / "build/bin");
  fs::create_directories(root / "build/share/evalrun");
  fs::create_directory_symlink(root / "source/adapters", root / "build/share/evalrun/adapters");
  EXPECT_EQ(shipped_path(root / "build/bin", "share/evalrun/adapters"), root / "source/adapters");
}

TEST(InstallPaths, ABuildFolderHasTheLayoutOfAnInstallation) {
  EXPECT_EQ(program_folder(), fs::canonical(EVALRUN_BINARY_DIR) / "bin");
  const fs::path source = fs::canonical(EVALRUN_SOURCE_DIR);
  EXPECT_EQ(shipped_path("share/evalrun/adapters"), source / "methods/adapters");
  EXPECT_EQ(shipped_path("libexec/evalrun/get-model"), source / "scripts/get-model");
}

}  // namespace
}  // namespace evalrun::base
