// `cmake --install` into a folder that is moved afterwards.
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {
namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;

class Installed : public CommandTest {
 protected:
  void SetUp() override {
    const ProgramResult result = run_command_in(
        folder_, {"cmake", "--install", EVALRUN_BINARY_DIR, "--prefix", folder_.file("before")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    fs::rename(folder_.file("before"), folder_.file("P"));
  }
  ProgramResult run_installed(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), folder_.file("P/bin/evalrun"));
    return run_command_in(folder_, arguments);
  }
};

TEST_F(Installed, FilesAndWhatTheProgramFinds) {
  for (const char* file :
       {"bin/evalrun", "libexec/evalrun/evalrun-box-init", "libexec/evalrun/get-model",
        "libexec/evalrun/fetch.sh", "share/evalrun/adapters/smollm2-135m/medusa.safetensors",
        "share/evalrun/suites/quick.json", "share/man/man1/evalrun.1",
        "share/man/man1/evalrun-baseline-save.1", "share/bash-completion/completions/evalrun",
        "share/zsh/site-functions/_evalrun", "share/fish/vendor_completions.d/evalrun.fish",
        "share/doc/evalrun/README.md", "share/doc/evalrun/LICENSE",
        "share/doc/evalrun/CHANGELOG.md", "share/doc/evalrun/docs/commands.md"})
    EXPECT_TRUE(fs::exists(folder_.file("P/") + file)) << file;

  // Adapters: for another model, so the message names where they are.
  folder_.write("prompts.jsonl", "{\"id\": 1, \"prompt\": \"a\", \"chat\": false}\n");
  const ProgramResult adapters = run_installed({"run", "-m", tiny_model(), "--methods", "medusa",
                                                "--tasks", "jsonl:prompts.jsonl", "-n", "4"});
  EXPECT_EQ(adapters.exit_code, 2);
  EXPECT_THAT(adapters.err, HasSubstr("P/share/evalrun/adapters/smollm2-135m/medusa.safetensors"));

  // The script that fetches the model, and a home that nothing can be written to.
  const ProgramResult check = run_installed({"data", "model", "--check"});
  EXPECT_EQ(check.exit_code, 7);
  EXPECT_EQ(check.out, "");
  EXPECT_THAT(check.err, HasSubstr("evalrun data model"));
  const ProgramResult read_only =
      run_command_in(folder_, {"sh", "-c", "EVALRUN_HOME=/proc/nothing P/bin/evalrun data model"});
  EXPECT_EQ(read_only.exit_code, 7);
  EXPECT_THAT(read_only.err, HasSubstr("set EVALRUN_HOME to a folder you may write to"));
  const ProgramResult no_pip = run_command_in(
      folder_,
      {"sh", "-c",
       "mkdir bin && for p in bash dirname cut mkdir sha256sum flock; do "
       "ln -s \"$(command -v $p)\" bin; done; printf '#!/bin/sh\\nexit 1\\n' >bin/python3; "
       "chmod +x bin/python3; ln -s \"$(command -v env)\" bin; PATH=$PWD/bin P/bin/evalrun "
       "data model"});
  EXPECT_EQ(no_pip.exit_code, 7);
  EXPECT_THAT(no_pip.err, HasSubstr("apt-get install python3-pip"));

  // Suites are examples; those compiled in are the same.
  EXPECT_EQ(run_installed({"validate", "P/share/evalrun/suites/quick.json"}).exit_code, 0);

  fs::remove_all(folder_.file("P/libexec"));
  expect_refused(run_installed({"data", "model"}), 6, "install evalrun again");
}

// The helper lies elsewhere than in a build folder: an installed program finds a sandbox where the
// built one does.
TEST_F(Installed, TheSandboxHelperIsFound) {
  const auto levels = [](const ProgramResult& result) {
    std::map<std::string, std::string> found;
    const json report = json::parse(result.out);
    for (const json& check : report["checks"])
      if (check["name"].get<std::string>().starts_with("sandbox"))
        found[check["name"]] = check["level"];
    return found;
  };
  const auto installed = levels(run_installed({"doctor", "--json"}));
  EXPECT_TRUE(installed.contains("sandbox"));
  EXPECT_EQ(installed, levels(run({"doctor", "--json"})));
}

// What `cpack -G DEB` does to the files before it packs them; scripts/package asks lintian.
TEST_F(Installed, TheDebianPackageIsCompressedAndHasItsChangelog) {
  fs::create_directory(folder_.file("D"));
  fs::copy(folder_.file("P"), folder_.file("D/usr"), fs::copy_options::recursive);
  const auto prepare = [&](const std::string& generator, const std::string& version) {
    return run_command_in(
        folder_, {"cmake", "-DCPACK_GENERATOR=" + generator, "-DCPACK_PACKAGE_VERSION=" + version,
                  "-DCPACK_PACKAGE_NAME=evalrun", "-DCPACK_PACKAGE_CONTACT=Us <us@example.org>",
                  "-DCPACK_TEMPORARY_INSTALL_DIRECTORY=" + folder_.file("D"), "-P",
                  EVALRUN_SOURCE_DIR "/cmake/debian_files.cmake"});
  };
  EXPECT_EQ(prepare("TGZ", "1.0.0").exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_.file("D/usr/share/man/man1/evalrun.1")));
  EXPECT_THAT(prepare("DEB", "9.9.9").err, HasSubstr("CHANGELOG.md has no section 9.9.9"));
  const ProgramResult result = prepare("DEB", "1.0.0");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const auto& page : fs::directory_iterator(folder_.file("D/usr/share/man/man1")))
    EXPECT_EQ(page.path().extension(), ".gz") << page.path();
  EXPECT_TRUE(fs::exists(folder_.file("D/usr/share/doc/evalrun/copyright")));
  EXPECT_TRUE(fs::exists(folder_.file("D/usr/share/lintian/overrides/evalrun")));
  const std::string changes =
      run_command_in(folder_, {"gzip", "-dc", "D/usr/share/doc/evalrun/changelog.gz"}).out;
  EXPECT_THAT(changes, ::testing::StartsWith("evalrun (1.0.0) unstable; urgency=medium\n\n  The"));
  EXPECT_THAT(changes, HasSubstr("\n  - **Engine.** GGUF"));
  EXPECT_THAT(changes, HasSubstr("\n\n -- Us <us@example.org>  "));
  EXPECT_THAT(changes, Not(HasSubstr("0.1.0\n\nThe state")));
}

TEST_F(Installed, HoldsNoPathOfTheBuild) {
  const std::string version = run_installed({"--version"}).out;
  if (version.find("Release") == version.npos) return;  // debug information names its sources
  for (const char* file : {"P/bin/evalrun", "P/libexec/evalrun/evalrun-box-init",
                           "P/share/man/man1/evalrun.1", "P/libexec/evalrun/get-model"}) {
    // Kernels of CUDA name theirs for profilers where tests are built (cmake/EvalrunOptions.cmake).
    const std::string root = EVALRUN_SOURCE_DIR "/", text = folder_.read(file);
    for (size_t at = 0; (at = text.find(root, at)) != text.npos; at += root.size()) {
      EXPECT_THAT(version, Not(HasSubstr("CUDA not compiled in"))) << file << text.substr(at, 99);
      EXPECT_EQ(text.substr(at + root.size(), 6), "engine") << file;
    }
  }
}

}  // namespace
}  // namespace evalrun::tests
