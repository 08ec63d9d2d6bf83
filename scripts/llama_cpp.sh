# shellcheck shell=bash
# llama.cpp as PyPI carries it: which package, built with which flags, and the name of such a build. Sourced, not run.

llama_package=llama-cpp-python
llama_version=0.3.36  # another version changes the anchor: every figure names it
gguf_version=0.19.0  # the package that writes model files
export llama_package llama_version

# add_gguf PYTHON WHAT: the package gguf into a virtual environment. WHAT needs it.
add_gguf() {
  "$1" -c 'import gguf' 2>/dev/null && return
  "$1" -m pip install --quiet --disable-pip-version-check "gguf==$gguf_version" ||
    die 6 "pip could not install gguf $gguf_version (the reason is above)" \
      "only $2 needs it; is there a network?"
}

cpu_flags() { grep -m 1 -E '^(flags|Features)' /proc/cpuinfo | cut -d: -f2 | tr -s ' ' '\n' | sort; }

# llama_cmake_args KIND: "native" is what a user of this machine gets; "avx2" leaves AVX-512 and AMX out.
llama_cmake_args() {
  local args option
  case $1 in
    native) args=(-DGGML_NATIVE=ON) ;;
    avx2)
      args=(-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF)
      for option in SSE42 AVX AVX2 FMA F16C BMI2; do args+=("-DGGML_$option=ON"); done
      for option in AVX_VNNI AVX512 AVX512_VBMI AVX512_VNNI AVX512_BF16 AMX_TILE AMX_INT8 AMX_BF16; do
        args+=("-DGGML_$option=OFF")
      done
      ;;
  esac
  printf '%s\n' "${args[*]}"
}

# llama_build_key KIND: names a build; a native one is bound to the instruction sets of this machine.
llama_build_key() {
  local key=$llama_package-$llama_version-$1
  if [[ $1 == native ]]; then key+=-$(cpu_flags | sha256sum | cut -c 1-12); fi
  printf '%s\n' "$key"
}
