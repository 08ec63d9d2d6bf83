// What every command prints: results to standard output, nothing else there.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::cli {

// Text and a newline, flushed, so that a reader of a pipe sees each result as it is made. Throws
// data_error when standard output cannot take it (disk full, closed pipe).
void print_line(std::string_view text);

// Whether what is written to `file`, an open descriptor, may hold colours: it is a terminal, and
// neither --no-color nor NO_COLOR says otherwise. An empty NO_COLOR is none (no-color.org).
bool colour_wanted(bool no_color, int file = 1);

// One line of JSON; bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& value);
// The same, indented, for documents people read too.
void print_json_document(const nlohmann::ordered_json& value);

// Columns padded to their widest cell (UTF-8 code points), two spaces apart, header first; the last
// column is not padded.
std::string aligned_table(const std::vector<std::string>& header,
                          const std::vector<std::vector<std::string>>& rows);

// "3 ms", "1.5 s", "412 ns": three significant digits.
std::string human_time(double ns);
// "138 MB", "3.4 GB" (powers of 1000).
std::string human_bytes(double bytes);

}  // namespace evalrun::cli
