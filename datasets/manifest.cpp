#include "datasets/manifest.h"

#include <algorithm>
#include <set>

#include "datasets/embedded.h"
#include "engine/base/json_fields.h"

namespace evalrun::datasets {

namespace {

using base::ObjectReader;

std::string read_sha256(ObjectReader& reader) {
  const auto text = reader.optional<std::string>("sha256", "");
  const bool hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!text.empty() && (text.size() != 64 || !hex))
    reader.fail("sha256", "must be 64 lower-case hexadecimal digits");
  return text;
}

int64_t read_bytes(ObjectReader& reader) {
  const auto bytes = reader.optional<int64_t>("bytes", 0);
  if (bytes < 0) reader.fail("bytes", "must not be negative");
  return bytes;
}

std::string read_path(ObjectReader& reader) {
  const auto path = reader.required<std::string>("path");
  // A manifest must not be able to write outside the data root.
  if (path.empty() || path.front() == '/' || ("/" + path + "/").find("/../") != std::string::npos)
    reader.fail("path", "must be relative and stay below the data root");
  return path;
}

ManifestFile read_entry(const nlohmann::json& object, const std::string& file,
                        const std::string& place) {
  ObjectReader reader(object, file, place);
  ManifestFile entry;
  entry.dataset = reader.required<std::string>("dataset");
  entry.path = read_path(reader);
  entry.url = reader.optional<std::string>("url", "");
  entry.bytes = read_bytes(reader);
  entry.sha256 = read_sha256(reader);
  entry.licence = reader.required<std::string>("licence");
  entry.count = reader.required<int>("count");
  entry.stand_in = reader.optional<bool>("stand_in", false);
  entry.note = reader.optional<std::string>("note", "");
  if (!entry.sha256.empty() && entry.bytes == 0) reader.fail("bytes", "is missing beside sha256");
  if (const nlohmann::json* subsets = reader.raw("subsets")) {
    if (!subsets->is_array()) reader.fail("subsets", "must be a list");
    for (size_t i = 0; i < subsets->size(); ++i) {
      ObjectReader sub((*subsets)[i], file, fmt::format("{}.subsets[{}]", place, i));
      KnownSubset subset;
      subset.count = sub.required<int>("count");
      subset.bytes = read_bytes(sub);
      subset.sha256 = read_sha256(sub);
      subset.note = sub.optional<std::string>("note", "");
      if (subset.sha256.empty()) sub.fail("sha256", "is missing");
      if (subset.count <= 0 || subset.count >= entry.count)
        sub.fail("count", "must be between 1 and the complete count");
      sub.finish();
      entry.subsets.push_back(std::move(subset));
    }
  }
  reader.finish();
  return entry;
}

}  // namespace

std::vector<ManifestFile> parse_manifest(std::string_view text, const std::string& file) {
  const nlohmann::json document = base::parse_json(text, file);
  ObjectReader reader(document, file, "");
  if (reader.required<int>("version") != 1) reader.fail("version", "must be 1");
  const nlohmann::json* files = reader.raw("files");
  if (files == nullptr || !files->is_array()) reader.fail("files", "must be a list");
  reader.finish();
  std::vector<ManifestFile> entries;
  std::set<std::string> paths;
  for (size_t i = 0; i < files->size(); ++i) {
    const std::string place = fmt::format("files[{}]", i);
    entries.push_back(read_entry((*files)[i], file, place));
    if (!paths.insert(entries.back().path).second)
      ObjectReader((*files)[i], file, place).fail("path", "was listed before");
  }
  return entries;
}

const std::vector<ManifestFile>& manifest() {
  static const std::vector<ManifestFile> kEntries =
      parse_manifest(embedded_text("manifest.json"), "datasets/manifest.json");
  return kEntries;
}

const ManifestFile* find_manifest_file(std::string_view path) {
  const auto& entries = manifest();
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&](const ManifestFile& e) { return e.path == path; });
  return it == entries.end() ? nullptr : &*it;
}

std::vector<std::string> fetchable_datasets() {
  std::vector<std::string> names;
  for (const ManifestFile& entry : manifest())
    if (entry.fetchable() && std::find(names.begin(), names.end(), entry.dataset) == names.end())
      names.push_back(entry.dataset);
  return names;
}

}  // namespace evalrun::datasets
