#include "runners/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::cli {
namespace {

size_t code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void append_row(std::string& out, const std::vector<std::string>& cells,
                const std::vector<size_t>& width) {
  for (size_t i = 0; i < cells.size(); ++i) {
    out += cells[i];
    if (i + 1 < cells.size()) out.append(width[i] - code_points(cells[i]) + 2, ' ');
  }
  out += '\n';
}

}  // namespace

void print_line(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                       std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  if (!written)
    throw base::data_error("standard output", "", std::strerror(errno),
                           "the rest of the output is lost; send it to a file with room");
}

bool colour_wanted(bool no_color, int file) {
  const char* set = std::getenv("NO_COLOR");
  return !no_color && (set == nullptr || *set == '\0') && ::isatty(file) != 0;
}

void print_json(const nlohmann::ordered_json& value) {
  print_line(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_json_document(const nlohmann::ordered_json& value) {
  print_line(value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::string aligned_table(const std::vector<std::string>& header,
                          const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> width(header.size(), 0);
  const auto widen = [&](const std::vector<std::string>& cells) {
    EVALRUN_CHECK(cells.size() == header.size(), "a row has {} cells, the header {}", cells.size(),
                  header.size());
    for (size_t i = 0; i < cells.size(); ++i) width[i] = std::max(width[i], code_points(cells[i]));
  };
  widen(header);
  for (const auto& row : rows) widen(row);
  std::string out;
  append_row(out, header, width);
  for (const auto& row : rows) append_row(out, row, width);
  out.pop_back();  // print_line adds the last newline
  return out;
}

std::string human_time(double ns) {
  if (ns < 1e3) return fmt::format("{:.3g} ns", ns);
  if (ns < 1e6) return fmt::format("{:.3g} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3g} ms", ns / 1e6);
  return fmt::format("{:.4g} s", ns / 1e9);
}

std::string human_bytes(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.3g} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.3g} MB", bytes / 1e6);
  return fmt::format("{:.3g} GB", bytes / 1e9);
}

}  // namespace evalrun::cli
