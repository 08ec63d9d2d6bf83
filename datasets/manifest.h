// The official data files: where they come from, how large they are and what their SHA-256 is.
//
// The manifest (datasets/manifest.json) is compiled into the library. Paths are relative to the
// data root. A file may be official, a known subset of the official one, a known stand-in, or
// something else: only a file that contradicts its own entry is an error, since people measure on
// their own selections too.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::datasets {

struct KnownSubset {
  int count = 0;  // records
  int64_t bytes = 0;
  std::string sha256;
  std::string note;
};

struct ManifestFile {
  std::string dataset;  // "gsm8k"; `fetch` takes this name
  std::string path;     // relative to the data root, "gsm8k/test.jsonl"
  std::string url;      // "" when there is nothing to download in this form
  int64_t bytes = 0;    // 0 = not known
  std::string sha256;   // lower-case hex, "" = not known: then it cannot be fetched either
  std::string licence;
  int count = 0;          // records of the complete file, 0 = not counted in records
  bool stand_in = false;  // a replacement for a set that is not public, named as such everywhere
  std::string note;       // how to get or convert it by hand, traps; may be empty
  std::vector<KnownSubset> subsets;

  bool fetchable() const { return !url.empty() && !sha256.empty(); }
};

// All entries, in the order of manifest.json. Parsed once.
const std::vector<ManifestFile>& manifest();

// The entry of a path relative to the data root; nullptr when it has none.
const ManifestFile* find_manifest_file(std::string_view path);

// Names that `fetch` accepts: sets with at least one fetchable file, in manifest order.
std::vector<std::string> fetchable_datasets();

// Reads manifest text; throws data_error naming the entry and the field. For tests.
std::vector<ManifestFile> parse_manifest(std::string_view text, const std::string& file);

// ---- verify ------------------------------------------------------------------------------------

enum class FileState {
  kOfficial,     // the complete official file
  kSubset,       // a known part of it
  kStandIn,      // the known stand-in
  kUnknown,      // readable, but with a checksum the manifest does not know
  kContradicts,  // has the size of a known file but other bytes, or cannot be read as what it is
  kMissing,
};
const char* to_string(FileState state);  // "official", "subset", "stand-in", "unknown", ...

struct FileCheck {
  ManifestFile file;
  FileState state = FileState::kMissing;
  int64_t bytes = 0;   // as found, 0 when missing
  std::string sha256;  // as found, "" when missing
  int count = 0;       // records, 0 when not known
  std::string detail;  // one line for people: "subset (660 of 1319)", "... differs from ..."
  bool is_error() const { return state == FileState::kContradicts; }
};

// One row per manifest entry. Throws usage_error when data_root is "" and data_error when it is not
// a folder; a broken file is a row, not an exception.
std::vector<FileCheck> verify_data(const std::string& data_root);
FileCheck verify_file(const ManifestFile& file, const std::string& data_root);

// What the bytes of a file are: official, subset, stand-in or unknown. `relative` is its path below
// the data root, `path` the full one for messages. Throws data_error when they contradict the
// manifest: the size of a known file, but not its checksum.
FileState checked_state(const std::string& path, std::string_view relative, std::string_view bytes);
// What LoadedDataset::verification says: "official", "subset (660 of 1319)", "stand-in",
// "unverified". `count` prompts were read of `total` the complete set has.
std::string verification_text(FileState state, size_t count, int total);

// ---- fetch -------------------------------------------------------------------------------------

struct FetchProgress {
  std::string path;  // relative to the data root
  int64_t done_bytes = 0, total_bytes = 0;
};

struct FetchOptions {
  std::string data_root;
  bool force = false;  // replace a file that exists but is not the official one
  int connect_timeout_s = 20;
  int stall_timeout_s = 60;  // give up when nothing arrives for so long
  // Called often, from the calling thread; return false to stop (Ctrl-C). May be empty.
  std::function<bool(const FetchProgress&)> progress;
};

enum class FetchOutcome { kFetched, kAlreadyThere };

struct FetchResult {
  ManifestFile file;
  FetchOutcome outcome = FetchOutcome::kFetched;
  std::string target;  // the file's full path
};

// Downloads one file beside its target, checks size and SHA-256, and renames it into place: the
// target is the old file or the complete new one, never a part. Throws data_error with what to do
// by hand (URL, target, checksum) when the network or the bytes are not as they should be,
// usage_error when there is no data root, the file cannot be fetched, or another file has its name
// and force is not set; kInterrupted when progress said stop.
FetchResult fetch_file(const ManifestFile& file, const FetchOptions& options);

// All fetchable files of one set, or of every set for "all". Throws usage_error for an unknown
// name.
std::vector<FetchResult> fetch_dataset(const std::string& name, const FetchOptions& options);

}  // namespace evalrun::datasets
