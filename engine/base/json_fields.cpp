#include "engine/base/json_fields.h"

#include <algorithm>

#include "engine/base/text.h"

namespace evalrun::base {

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    const size_t at = std::min<size_t>(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const auto line =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    const size_t line_start = text.substr(0, at).rfind('\n');
    const size_t column = line_start == std::string_view::npos ? at + 1 : at - line_start;
    throw data_error(file, fmt::format("line {}, column {}", line, column), "not valid JSON",
                     "open the file at that place; a truncated download is the usual cause");
  } catch (const nlohmann::json::out_of_range&) {  // 1e999
    throw data_error(file, "", "holds a number out of range");
  }
}

ObjectReader::ObjectReader(const nlohmann::json& object, std::string file, std::string path,
                           ExitCode code)
    : object_(object), file_(std::move(file)), path_(std::move(path)), code_(code) {
  if (!object_.is_object())
    throw Error(code_, fmt::format("{}: {}: must be an object, not {}", file_,
                                   path_.empty() ? "top level" : path_, object_.type_name()));
}

std::string ObjectReader::place(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void ObjectReader::fail(const std::string& key, const std::string& what,
                        const std::string& hint) const {
  throw Error(code_, fmt::format("{}: field '{}' {}", file_, place(key), what), hint);
}

const nlohmann::json* ObjectReader::raw(const std::string& key) {
  asked_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() ? nullptr : &*it;
}

bool ObjectReader::has(const std::string& key) { return raw(key) != nullptr; }

std::vector<std::string> ObjectReader::unknown() const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items())
    if (!asked_.contains(item.key())) keys.push_back(item.key());
  return keys;
}

void ObjectReader::finish() const {
  for (const std::string& key : unknown())
    throw Error(code_, fmt::format("{}: unknown field '{}'", file_, place(key)),
                suggest(key, asked()));
}

}  // namespace evalrun::base
