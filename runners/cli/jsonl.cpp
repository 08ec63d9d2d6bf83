#include "runners/cli/jsonl.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::cli {

JsonlReader::JsonlReader(const std::string& path)
    : file_(path == "-" ? "standard input" : path), in_(&std::cin) {
  if (path == "-") return;
  // Opening a folder succeeds and only reading fails; say what it is.
  if (std::filesystem::is_directory(path))
    throw base::data_error(path, "", "is a folder", "give a file with one JSON object per line");
  stream_.open(path, std::ios::binary);
  if (!stream_)
    throw base::data_error(path, "", std::strerror(errno),
                           "give a file with one JSON object per line, or - for standard input");
  in_ = &stream_;
}

std::string JsonlReader::place() const { return fmt::format("{}: line {}", file_, line_); }

void JsonlReader::fail(const std::string& what, const std::string& hint) const {
  throw base::data_error(place(), "", what, hint);
}

std::optional<nlohmann::json> JsonlReader::next() {
  std::string text;
  while (std::getline(*in_, text)) {
    ++line_;
    if (base::trim(text).empty()) continue;
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(text);
    } catch (const nlohmann::json::parse_error& e) {
      fail(fmt::format("column {}: not valid JSON", e.byte),
           "each line holds one complete JSON object; a truncated file is the usual cause");
    } catch (const nlohmann::json::out_of_range&) {
      fail("holds a number that no double can hold");
    }
    if (!object.is_object())
      fail(fmt::format("must be a JSON object, not {}", object.type_name()),
           "each line holds one object in braces");
    return object;
  }
  if (in_->bad()) throw base::data_error(file_, "", "reading failed");
  return std::nullopt;
}

std::string JsonlReader::text(const nlohmann::json& object, const std::string& key) const {
  const auto it = object.find(key);
  if (it == object.end()) fail(fmt::format("field '{}' is missing", key));
  if (!it->is_string()) fail(fmt::format("field '{}' must be text, not {}", key, it->type_name()));
  return it->get<std::string>();
}

std::vector<int32_t> JsonlReader::tokens(const nlohmann::json& object, const std::string& key,
                                         int vocab_size) const {
  const auto it = object.find(key);
  if (it == object.end()) fail(fmt::format("field '{}' is missing", key));
  if (!it->is_array())
    fail(fmt::format("field '{}' must be an array of token ids, not {}", key, it->type_name()));
  std::vector<int32_t> ids;
  ids.reserve(it->size());
  for (const nlohmann::json& value : *it) {
    const bool fits = value.is_number_integer() && value.get<double>() >= 0 &&
                      value.get<double>() < static_cast<double>(vocab_size);
    if (!fits)
      fail(fmt::format("field '{}[{}]' must be a token id from 0 to {}, not {}", key, ids.size(),
                       vocab_size - 1, value.dump()));
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

}  // namespace evalrun::cli
