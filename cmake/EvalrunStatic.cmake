# EVALRUN_STATIC: a program to be carried elsewhere. What differs is the link alone, so that a build folder goes from one to
# the other in seconds. Static is what Debian has as .a; fmt and spdlog, which it has not, are compiled here from their
# headers; libdivsufsort goes along (EvalrunInstall.cmake). The C library, libcurl and what that brings with it
# (OpenSSL, zlib) stay the system's.
set(archives RE2 re2 PCRE2 pcre2-8 XXHASH xxhash UTF8PROC utf8proc SECCOMP seccomp)
while(archives)
  list(POP_FRONT archives package name)
  find_library(EVALRUN_STATIC_${package} lib${name}.a REQUIRED)
  set_property(TARGET PkgConfig::${package} PROPERTY INTERFACE_LINK_LIBRARIES ${EVALRUN_STATIC_${package}}
                                                     Threads::Threads)
endwhile()
find_library(EVALRUN_STATIC_SQLITE3 libsqlite3.a REQUIRED)
set_target_properties(SQLite::SQLite3 PROPERTIES IMPORTED_LOCATION ${EVALRUN_STATIC_SQLITE3})
set_property(TARGET SQLite::SQLite3 APPEND PROPERTY INTERFACE_LINK_LIBRARIES m ${CMAKE_DL_LIBS} Threads::Threads)

# The sources of both libraries are such lines; Debian has the headers alone.
set(static ${CMAKE_BINARY_DIR}/static)
file(CONFIGURE OUTPUT ${static}/fmt.cpp @ONLY CONTENT [[
#include <fmt/format-inl.h>
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API locale_ref::locale_ref(const std::locale& loc);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>,
                                 locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
]])
file(CONFIGURE OUTPUT ${static}/spdlog.cpp @ONLY CONTENT [[
#include <mutex>

#include <spdlog/common-inl.h>
#include <spdlog/details/backtracer-inl.h>
#include <spdlog/details/log_msg-inl.h>
#include <spdlog/details/log_msg_buffer-inl.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os-inl.h>
#include <spdlog/details/periodic_worker-inl.h>
#include <spdlog/details/registry-inl.h>
#include <spdlog/logger-inl.h>
#include <spdlog/pattern_formatter-inl.h>
#include <spdlog/sinks/ansicolor_sink-inl.h>
#include <spdlog/sinks/base_sink-inl.h>
#include <spdlog/sinks/sink-inl.h>
#include <spdlog/sinks/stdout_color_sinks-inl.h>
#include <spdlog/sinks/stdout_sinks-inl.h>
#include <spdlog/spdlog-inl.h>
using Mutex = spdlog::details::console_mutex;
template SPDLOG_API spdlog::logger::logger(std::string, spdlog::sinks_init_list::iterator,
                                           spdlog::sinks_init_list::iterator);
template class SPDLOG_API spdlog::sinks::base_sink<std::mutex>;
template class SPDLOG_API spdlog::sinks::base_sink<spdlog::details::null_mutex>;
template class SPDLOG_API spdlog::sinks::stdout_sink_base<Mutex>;
template class SPDLOG_API spdlog::sinks::stdout_sink<Mutex>;
template class SPDLOG_API spdlog::sinks::stderr_sink<Mutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_sink<Mutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_stdout_sink<Mutex>;
template class SPDLOG_API spdlog::sinks::ansicolor_stderr_sink<Mutex>;
template SPDLOG_API std::shared_ptr<spdlog::logger> spdlog::stderr_logger_mt<spdlog::synchronous_factory>(
    const std::string&);
template SPDLOG_API std::shared_ptr<spdlog::logger> spdlog::stderr_color_mt<spdlog::synchronous_factory>(
    const std::string&, spdlog::color_mode);
]])
foreach(name fmt spdlog)
  add_library(evalrun_static_${name} STATIC ${static}/${name}.cpp)
  set_target_properties(evalrun_static_${name} PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${static})
  set_target_properties(${name}::${name} PROPERTIES IMPORTED_LOCATION_NONE ${static}/libevalrun_static_${name}.a)
  add_dependencies(${name}::${name} evalrun_static_${name})
endforeach()
target_compile_definitions(evalrun_static_spdlog PRIVATE SPDLOG_SHARED_LIB SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL)
