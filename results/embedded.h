// schema.sql, triggers.sql and views.sql, compiled into the library.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "engine/base/embedded_file.h"

namespace evalrun::results {

std::span<const base::EmbeddedFile> embedded_sql();
std::string embedded_sql(std::string_view name);  // an unknown name is our own mistake

}  // namespace evalrun::results
