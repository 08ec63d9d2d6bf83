# Build options and the one interface target (evalrun_options) that carries our compiler flags.
option(EVALRUN_TESTS "Build the tests" ON)
set(EVALRUN_CUDA ON CACHE STRING "Compile the CUDA part: ON = when nvcc >= 12 is found, REQUIRED, OFF")
set_property(CACHE EVALRUN_CUDA PROPERTY STRINGS ON REQUIRED OFF)
set(EVALRUN_MPI ON CACHE STRING "Build the library for `evalrun run --mpi`: ON = when MPI is found, REQUIRED, OFF")
set_property(CACHE EVALRUN_MPI PROPERTY STRINGS ON REQUIRED OFF)
option(EVALRUN_WERROR "Treat warnings as errors" OFF)
option(EVALRUN_FUZZ "Build the libFuzzer programs, with address and undefined-behaviour sanitizers (Clang)" OFF)
option(EVALRUN_STATIC "Link evalrun with static libraries where Debian has them, for a program to be carried elsewhere" OFF)
option(EVALRUN_UNITY "Compile files together, read common headers once: faster from nothing, slower after a change" OFF)
set(EVALRUN_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# ccache only shortens our own rebuilds; nothing depends on it.
find_program(EVALRUN_CCACHE ccache)
if(EVALRUN_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${EVALRUN_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${EVALRUN_CCACHE})
endif()

add_library(evalrun_options INTERFACE)
target_include_directories(evalrun_options INTERFACE ${CMAKE_SOURCE_DIR})
# -ffp-contract=off: an fma happens only where the source says so, on every path. Contracted or
# reassociated arithmetic would make a row's bits depend on which kernel computed it.
target_compile_options(evalrun_options INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-ffp-contract=off>")
# The same for nvcc: -fmad=false is -ffp-contract=off of kernels. No -Wpedantic: what nvcc generates breaks it.
# -lineinfo, for profilers, costs nothing at run time, but names the sources by their whole paths: not in packages,
# which are built without tests. fmt 9 takes nvcc for older than it is.
set(lineinfo)
if(EVALRUN_TESTS)
  set(lineinfo "-lineinfo;")
endif()
target_compile_options(evalrun_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1;-fmad=false;--expt-relaxed-constexpr;${lineinfo}-Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off>")
# Messages name files from the root of the tree: a program that is given away holds no path of who built it.
target_compile_options(evalrun_options INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # std::string concatenation at -O3 draws a false warning (GCC bug 105651).
  target_compile_options(evalrun_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-restrict>")
endif()
if(EVALRUN_WERROR)
  target_compile_options(evalrun_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>"
                         "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(EVALRUN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "EVALRUN_FUZZ needs Clang: -DCMAKE_CXX_COMPILER=clang++ (Debian: clang)")
  endif()
  set(EVALRUN_SANITIZE "address,undefined")
  target_compile_options(evalrun_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(EVALRUN_SANITIZE)
  target_compile_options(evalrun_options INTERFACE -fsanitize=${EVALRUN_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(evalrun_options INTERFACE -fsanitize=${EVALRUN_SANITIZE})
endif()
find_package(Threads REQUIRED)
# RE2 asks for it. Equal flags everywhere: files share a precompiled header.
target_compile_options(evalrun_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-pthread>")
target_link_libraries(evalrun_options INTERFACE Threads::Threads)

# evalrun_unity(<target...>): may be compiled several files at once. Not for files that repeat names by design:
# SKIP_UNITY_BUILD_INCLUSION leaves them alone. A missing #include is found by builds without it (presets debug and
# asan).
function(evalrun_unity)
  if(EVALRUN_UNITY)
    # 16 files and not CMake's 8: an eighth less of processor time for reports/.
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()

# evalrun_off_the_clock(<target...>): nothing in them runs while a method is timed. Less optimisation takes a third off
# the build time of reports/.
function(evalrun_off_the_clock)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  endforeach()
endfunction()

# evalrun_common_headers(<target...>): reads what nearly every file includes once for all of these targets. Under the
# same switch, for the same reason. Called when the target's own flags are set: all of them must be those of
# evalrun_options.
function(evalrun_common_headers)
  if(NOT EVALRUN_UNITY)
    return()
  endif()
  if(NOT TARGET evalrun_pch)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch.cpp CONTENT "// For evalrun_common_headers().\n")
    add_library(evalrun_pch OBJECT ${CMAKE_BINARY_DIR}/pch.cpp)
    target_link_libraries(evalrun_pch PRIVATE evalrun_options fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(evalrun_pch PRIVATE <nlohmann/json.hpp> <fmt/format.h> <algorithm> <chrono> <cmath>
                              <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span>
                              <sstream> <string> <unordered_map> <variant> <vector>)
  endif()
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM evalrun_pch)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      # GCC 12 shows more false warnings about std::string where its header is precompiled.
      target_compile_options(${target} PRIVATE
        "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow>")
    endif()
  endforeach()
endfunction()

# For the commit of the build (cmake/write_commit.cmake).
find_package(Git QUIET)
