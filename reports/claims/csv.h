// A comma-separated file as records of text, by RFC 4180: fields may be quoted, a quote in a quoted
// field is doubled, quoted fields may hold commas and line ends; lines end with LF or CR LF.
// Strict: what the RFC does not allow is an error.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::reports {

struct CsvRecord {
  size_t line = 0;  // where it begins, 1 = the first
  std::vector<std::string> fields;
};

// Throws data_error naming `file` and the line. A byte order mark at the start is skipped.
std::vector<CsvRecord> parse_csv(std::string_view text, const std::string& file);

}  // namespace evalrun::reports
