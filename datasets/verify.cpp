// Comparing files under a data root with the manifest.
#include <filesystem>

#include "datasets/json_lines.h"
#include "datasets/manifest.h"
#include "engine/base/text.h"

namespace evalrun::datasets {

namespace fs = std::filesystem;

namespace {

struct Match {
  FileState state = FileState::kUnknown;
  int count = 0;
  std::string text = "unverified";
};

Match match_checksum(const ManifestFile& entry, std::string_view sha256) {
  if (!entry.sha256.empty() && sha256 == entry.sha256)
    return entry.stand_in ? Match{FileState::kStandIn, entry.count, "stand-in"}
                          : Match{FileState::kOfficial, entry.count, "official"};
  for (const KnownSubset& subset : entry.subsets)
    if (sha256 == subset.sha256)
      return {FileState::kSubset, subset.count,
              fmt::format("subset ({} of {})", subset.count, entry.count)};
  return {};
}

// The checksum that a file of this size should have had, when it has none of the known ones.
std::string contradicted_sha256(const ManifestFile& entry, int64_t bytes) {
  if (entry.bytes > 0 && bytes == entry.bytes) return entry.sha256;
  for (const KnownSubset& subset : entry.subsets)
    if (subset.bytes > 0 && bytes == subset.bytes) return subset.sha256;
  return "";
}

std::string contradiction_text(const std::string& expected, const std::string& found) {
  return fmt::format(
      "has the size of the known file, whose SHA-256 is {}, but SHA-256 {}; it is damaged or "
      "edited",
      expected, found);
}

// The spec of a set, or of its part, that reads this file and no other one; "" when there is none.
std::string spec_that_reads(const std::string& path) {
  for (const auto& [name, set] : dataset_registry().entries())
    for (size_t i = 0; i < set.info.files.size(); ++i)
      if (set.info.files[i] == path)
        return set.info.files.size() == 1 ? name : fmt::format("{}[{}]", name, set.info.parts[i]);
  return "";
}

// Reads a file that no checksum vouches for with the loader of its set, if it has one, so that a
// broken file is found here and not in the middle of a run.
void inspect_unknown(FileCheck& check, const std::string& data_root) {
  const ManifestFile& entry = check.file;
  if (const std::string expected = contradicted_sha256(entry, check.bytes); !expected.empty()) {
    check.state = FileState::kContradicts;
    check.detail = contradiction_text(expected, check.sha256);
    return;
  }
  check.detail = "not in the manifest (an own selection?); results are marked unverified";
  const std::string spec = spec_that_reads(entry.path);
  if (spec.empty()) return;
  try {
    check.count = static_cast<int>(load_dataset(spec, data_root).prompts.size());
  } catch (const base::Error& e) {
    check.state = FileState::kContradicts;
    check.detail = e.message();
    return;
  }
  if (entry.count > 0 && check.count > entry.count) {
    check.state = FileState::kContradicts;
    check.detail =
        fmt::format("has {} records, the official file has {}", check.count, entry.count);
  }
}

}  // namespace

const char* to_string(FileState state) {
  switch (state) {
    case FileState::kOfficial:
      return "official";
    case FileState::kSubset:
      return "subset";
    case FileState::kStandIn:
      return "stand-in";
    case FileState::kUnknown:
      return "unknown";
    case FileState::kContradicts:
      return "contradicts";
    case FileState::kMissing:
      return "missing";
  }
  return "?";
}

FileCheck verify_file(const ManifestFile& file, const std::string& data_root) {
  FileCheck check;
  check.file = file;
  const fs::path path = fs::path(data_root) / file.path;
  std::error_code error;
  if (!fs::exists(path, error)) {
    check.detail = file.fetchable()
                       ? fmt::format("`evalrun data fetch {}` downloads it", file.dataset)
                       : "not downloadable in this form";
    if (!file.note.empty()) check.detail += "; " + file.note;
    return check;
  }
  try {
    check.sha256 = base::sha256_file(path.string());
    check.bytes = static_cast<int64_t>(fs::file_size(path));
  } catch (const std::exception& e) {
    check.state = FileState::kContradicts;
    check.detail = e.what();
    return check;
  }
  const Match match = match_checksum(file, check.sha256);
  check.state = match.state;
  check.count = match.count;
  check.detail = match.text;
  if (match.state == FileState::kUnknown) inspect_unknown(check, data_root);
  return check;
}

std::vector<FileCheck> verify_data(const std::string& data_root) {
  if (data_root.empty())
    throw base::usage_error("no data root to verify", "give --data-root DIR or set EVALRUN_DATA");
  if (!fs::is_directory(data_root))
    throw base::data_error(data_root, "", "is not a folder",
                           "give the folder that holds gsm8k/, mt_bench/ and so on");
  std::vector<FileCheck> checks;
  for (const ManifestFile& entry : manifest()) checks.push_back(verify_file(entry, data_root));
  return checks;
}

FileState checked_state(const std::string& path, std::string_view relative,
                        std::string_view bytes) {
  const ManifestFile* entry = find_manifest_file(relative);
  if (entry == nullptr) return FileState::kUnknown;
  const std::string found = base::sha256_hex(bytes);
  const FileState state = match_checksum(*entry, found).state;
  if (state != FileState::kUnknown) return state;
  const std::string expected = contradicted_sha256(*entry, static_cast<int64_t>(bytes.size()));
  if (expected.empty()) return state;
  throw base::data_error(
      path, "", contradiction_text(expected, found),
      entry->fetchable()
          ? fmt::format("fetch it again: `evalrun data fetch --force {}`", entry->dataset)
          : "get it again; to measure an edited file, use jsonl:FILE");
}

std::string verification_text(FileState state, size_t count, int total) {
  switch (state) {
    case FileState::kOfficial:
      return "official";
    case FileState::kSubset:
      return fmt::format("subset ({} of {})", count, total);
    case FileState::kStandIn:
      return "stand-in";
    default:
      return "unverified";
  }
}

}  // namespace evalrun::datasets
