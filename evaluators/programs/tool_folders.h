// Parts of toolchains that are prepared once and kept: precompiled headers, class archives, crates.
#pragma once
#include <string>

#include "evaluators/programs/language.h"
#include "evaluators/sandbox/box.h"

namespace evalrun::evaluators {

// `root`/toolchains/<language>-<hash of version and recipe>, made in the sandbox when it is not
// there: beside its place, then renamed, so that two processes cannot meet half of one. "" when the
// language needs nothing. Throws base::Error (kEnvironment) with the tool's own words.
std::string prepare_tool_folder(Sandbox& sandbox, const Language& language,
                                const Toolchain& toolchain, const std::string& root);

}  // namespace evalrun::evaluators
