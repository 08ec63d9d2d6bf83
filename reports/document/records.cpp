#include "reports/document/records.h"

#include <fmt/format.h>

#include "reports/document/escape.h"
#include "reports/document/writers.h"

namespace evalrun::reports {
namespace {

std::string record_text(const Json& v) {
  if (v.is_null()) return "";
  if (v.is_string()) return v.get<std::string>();
  if (!v.is_array()) return v.dump();
  std::vector<std::string> items;  // alpha by depth: "0.5;0.4"
  for (const Json& item : v) items.push_back(record_text(item));
  return fmt::format("{}", fmt::join(items, ";"));
}

void add_record(const Json& object, const std::string& prefix, bool names, Table& table,
                std::vector<Cell>& row) {
  for (const auto& [key, v] : object.items()) {
    if (v.is_object()) {
      add_record(v, prefix + key + "_", names, table, row);
      continue;
    }
    if (names) table.columns.push_back({.name = prefix + key, .words = true});
    row.emplace_back(record_text(v));
  }
}

void write_csv(const Table& table, std::string& out) {
  std::vector<std::string> line;
  for (const Column& column : table.columns) line.push_back(escape_csv(column.name));
  out += fmt::format("{}\n", fmt::join(line, ","));
  for (const std::vector<Cell>& row : table.rows) {
    line.clear();
    for (const Cell& cell : row) line.push_back(escape_csv(cell.plain()));
    out += fmt::format("{}\n", fmt::join(line, ","));
  }
}

}  // namespace

Table records(const Json& rows) {
  Table table;
  for (const Json& object : rows) {
    std::vector<Cell> row;
    add_record(object, "", table.rows.empty(), table, row);
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string write_csv(const Document& document) {
  std::string out;
  if (document.data) {
    write_csv(*document.data, out);
    return out;
  }
  for (const auto& block : document.blocks)
    if (const Table* table = std::get_if<Table>(&block)) {
      if (!out.empty()) out += "\n";
      write_csv(*table, out);
    }
  return out;
}

}  // namespace evalrun::reports
