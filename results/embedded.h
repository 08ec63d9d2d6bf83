// schema.sql, triggers.sql and views.sql, compiled into the library.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace evalrun::results {

struct EmbeddedFile {
  std::string_view name, text;
};

std::span<const EmbeddedFile> embedded_sql();
std::string embedded_sql(std::string_view name);  // an unknown name is our own mistake

}  // namespace evalrun::results
