# shellcheck shell=bash
# Helpers of the scripts in this folder: Debian packages, configure and build; with fetch.sh: messages, downloads.
# Sourced, not run; the caller has set -euo pipefail.
# shellcheck source-path=SCRIPTDIR source=fetch.sh
source "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export root evalrun_home

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
# For tests of job arrays and MPI (docs/slurm.md); without them these are skipped.
cluster_packages=(slurmctld slurmd slurm-client munge libopenmpi-dev openmpi-bin)

# shellcheck disable=SC2034
# Languages whose programs can be scored (docs/sandbox.md); g++ is installed already.
code_packages=(
  python3 python3-numpy libboost-dev libssl-dev default-jdk-headless nodejs
  golang-go golang-github-stretchr-testify-dev
  rustc cargo lld librust-regex-dev librust-regex+perf-dev librust-aho-corasick-dev librust-memchr-dev
  librust-md5-dev librust-rand-dev
)

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

# make_venv FOLDER: a new virtual environment of Python, instead of what was there.
make_venv() {
  rm -rf "$1"
  python3 -m venv "$1" >&2 ||
    die 6 "python3 cannot make the virtual environment $1" "install it: apt-get install python3-venv"
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

# Which they are, as taskset writes them: "0-3,8". No quota is in it.
allowed_core_list() { awk '/^Cpus_allowed_list:/ {print $2}' /proc/self/status; }

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
