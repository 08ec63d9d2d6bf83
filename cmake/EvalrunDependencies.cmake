# Every dependency is a Debian package found with find_package; configuring downloads nothing.
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(CLI11 2 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(CURL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Boost 1.74 REQUIRED)  # Boost.Math, headers alone
find_package(PkgConfig REQUIRED)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)

# Two libraries of one package: indices of 32 and of 64 bits.
pkg_check_modules(DIVSUFSORT IMPORTED_TARGET libdivsufsort libdivsufsort64)
if(NOT DIVSUFSORT_FOUND)
  message(FATAL_ERROR "libdivsufsort and libdivsufsort64 not found (Debian: libdivsufsort-dev). They sort "
                      "the suffixes of corpora (methods/corpus/corpus_text.cpp).")
endif()

# Drawn by the browser of who reads an HTML report; compiled in, so that a report is one file.
find_file(EVALRUN_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH
          DOC "Chart.js 3, minified, with its licence line")
if(NOT EVALRUN_CHART_JS)
  message(FATAL_ERROR "Chart.js 3 not found (Debian: libjs-chart.js). It draws the charts of "
                      "`evalrun report -o html`. Elsewhere: -DEVALRUN_CHART_JS=path to its chart.min.js")
endif()
file(READ ${EVALRUN_CHART_JS} chart_js_head LIMIT 200)
if(NOT chart_js_head MATCHES "Chart\\.js v3\\.")
  message(FATAL_ERROR "${EVALRUN_CHART_JS} does not say that it is Chart.js v3, whose interface "
                      "reports/html is written for")
endif()

set(EVALRUN_HAVE_CUDA OFF)
if(EVALRUN_CUDA)  # ON or REQUIRED
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)  # 80 with PTX, for all that is newer
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    endif()
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
      find_package(CUDAToolkit REQUIRED)
      set(EVALRUN_HAVE_CUDA ON)
    endif()
  endif()
endif()
if(EVALRUN_HAVE_CUDA)
  message(STATUS "evalrun: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES} (--device cuda)")
elseif(EVALRUN_CUDA STREQUAL "REQUIRED")
  message(FATAL_ERROR "no nvcc of CUDA 12 or newer found: put it on PATH, or -DCMAKE_CUDA_COMPILER=path to nvcc")
elseif(EVALRUN_CUDA)
  message(STATUS "evalrun: CPU build (no nvcc >= 12 found; install the CUDA Toolkit to add CUDA)")
else()
  message(STATUS "evalrun: CPU build (EVALRUN_CUDA=OFF)")
endif()
