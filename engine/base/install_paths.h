// Files that come with the program. An installation is PREFIX/bin/evalrun with PREFIX/share/evalrun
// and PREFIX/libexec/evalrun beside it, wherever PREFIX is moved to. A build tree has the same
// layout, by links to the sources (cmake/EvalrunInstall.cmake), so the program holds no path of the
// machine that built it.
#pragma once
#include <filesystem>
#include <string_view>

namespace evalrun::base {

// Folder of the running program, links followed; empty where the system does not say.
std::filesystem::path program_folder();

// PREFIX/`relative` for the program in PREFIX/bin, links followed; empty when nothing is there.
// E.g. "share/evalrun/adapters".
std::filesystem::path shipped_path(std::string_view relative);

// The same for a program in `bin_folder`.
std::filesystem::path shipped_path(const std::filesystem::path& bin_folder,
                                   std::string_view relative);

}  // namespace evalrun::base
