// Rust: rustc itself with crates prepared once, the debug profile of `cargo test` (overflow checks
// on), lld. A test module of ours runs last.
#include "evaluators/programs/language.h"
#include "evaluators/programs/support/embedded.h"

namespace evalrun::evaluators {
namespace {

using datasets::CodeProblem;

constexpr const char* kCompiler = "/usr/bin/rustc";

Assembly assemble(const CodeProblem& problem, const Answer& answer, const AssemblyOptions&) {
  if (!answer.whole)
    return {"\nfn main(){ \n } \n" + problem.declaration + problem.prompt + answer.code,
            problem.test};
  const std::string code =
      without_function(answer.code, R"((?m)^(?:pub\s+)?fn\s+main\s*\(\s*\)\s*\{)");
  // An answer with imports of its own does not need ours, and the same name twice is an error.
  const bool imports = !split_lines(code, {"use "}).first.empty();
  return {"\nfn main(){ \n } \n" + (imports ? "" : without_last_line(problem.declaration)) + code +
              "\n",
          problem.test};
}

Commands commands(const Assembly& program, const Secrets& secrets, const BoxPaths& paths) {
  Commands c;
  BoxRequest compile;
  compile.command = {"/bin/sh", paths.tool + "/build.sh", paths.tool, paths.job};
  compile.input = program.code + program.test +
                  "\n#[cfg(test)]\nmod zzz_evalrun {\n    #[test]\n    fn zzz_done() {\n"
                  "        use std::io::Write;\n        use std::os::unix::io::FromRawFd;\n"
                  "        let mut control = unsafe { std::fs::File::from_raw_fd(3) };\n"
                  "        control.write_all(b\"" +
                  secrets.nonce + "\").unwrap();\n    }\n}\n";
  compile.proc = true;
  c.compile = std::move(compile);
  c.run.command = {paths.job + "/program", "--test-threads=1"};
  return c;
}

constexpr const char* kBuildScript = R"(
exec rustc --test --edition 2021 --cap-lints allow -C debuginfo=0 -C link-arg=-fuse-ld=lld \
  -C incremental= --crate-name program -L dependency="$1/deps" --extern rand="$1/librand.rlib" \
  --extern regex="$1/libregex.rlib" --extern md5="$1/libmd5.rlib" -o "$2/program" -
)";

constexpr const char* kMakeTool = R"(set -e
mkdir -p /tmp/cargo
cat > /tmp/cargo/config.toml <<'TEXT'
[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "/usr/share/cargo/registry"
TEXT
cd "$1"
export CARGO_HOME=/tmp/cargo RUSTC=/usr/bin/rustc CARGO_TARGET_DIR=/tmp/target
/usr/bin/cargo build --offline --quiet
mkdir deps
cp /tmp/target/debug/deps/*.rlib deps
for crate in rand regex md5; do
  # The shim and the crate behind it have one name; the shim is what cargo puts into debug/.
  if [ $crate = rand ]; then from=/tmp/target/debug/librand.rlib; else from=$(ls deps/lib$crate-*.rlib); fi
  cp "$from" lib$crate.rlib
done
)";

Toolchain find_toolchain() {
  Toolchain found;
  found.version = first_line_of({kCompiler, "--version"});
  if (found.version.empty()) found.packages.emplace_back("rustc");
  require_file(found, "/usr/bin/cargo", "cargo");
  require_file(found, "/usr/bin/ld.lld", "lld");
  const std::string registry = "/usr/share/cargo/registry/";
  const auto require_crate = [&](const std::string& name, const std::string& package) {
    if (first_line_of({"/bin/sh", "-c", "ls -d " + registry + name + "-[0-9]*"}).empty())
      found.packages.push_back(package);
  };
  require_crate("regex", "librust-regex-dev");
  require_crate("aho-corasick", "librust-regex+perf-dev");
  require_crate("memchr", "librust-memchr-dev");
  require_crate("md5", "librust-md5-dev");
  require_crate("rand", "librust-rand-dev");
  return found;
}

}  // namespace

Language rust_language() {
  Language language;
  language.name = "rust";
  language.title = "Rust";
  language.find_toolchain = &find_toolchain;
  language.tool_files = {{"Cargo.toml", support_file("rust_Cargo.toml")},
                         {"rand.rs", support_file("rust_rand.rs")},
                         {"build.sh", kBuildScript},
                         {"make.sh", kMakeTool}};
  language.tool_command = [](const BoxPaths& paths) {
    return std::vector<std::string>{"/bin/sh", paths.tool + "/make.sh", paths.tool};
  };
  language.assemble = &assemble;
  language.commands = &commands;
  language.run_limits.address_space = int64_t{1} << 30;
  language.counts_tests = true;
  return language;
}

}  // namespace evalrun::evaluators
