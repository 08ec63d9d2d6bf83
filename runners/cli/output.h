// What every command prints: results to standard output, nothing else there.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "reports/document/document.h"

namespace CLI {
class App;
}

namespace evalrun::cli {

struct GlobalOptions;

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

// Columns of what is printed: $COLUMNS, else the terminal's, and 100 in a pipe or a file. 0 where
// lines may be of any length (COLUMNS=0).
size_t report_width();

// Where a report goes, and in which format.
struct ReportOutput {
  std::string format = "text";  // -o: a format, or the name of a file whose ending says it
  std::string file;             // --out; "" = standard output
  // Registers -o, for the formats that the command has.
  void add_format(CLI::App& app, const std::vector<reports::Format>& formats);
  // What -o and --json ask for; a file name of -o goes to `file`. usage_error for other words.
  reports::Format resolve(const GlobalOptions& global);
  // Text of report_width(), in colour on a terminal.
  reports::Layout layout(const GlobalOptions& global) const;
  // To the file, which is named in the log, or to standard output.
  void deliver(const std::string& text) const;

 private:
  std::vector<reports::Format> formats_;
};

// Columns of text padded to their widest cell, two spaces apart, header first; at most
// report_width() wide.
std::string aligned_table(const std::vector<std::string>& header,
                          const std::vector<std::vector<std::string>>& rows);

}  // namespace evalrun::cli
