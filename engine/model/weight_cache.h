// Converted weights on disk: $EVALRUN_HOME/weights/<model hash>-<format>-<layout version>.bin, so
// that rounding a model to a format is paid for once.
//
// A file is a header, the bytes of all matrices as they lie in memory, an XXH3 checksum for each
// MiB of them with one over the checksums, and a page that names the model's source. The header is
// JSON, padded with blanks: layout version, model hash, format, and each matrix with storage, shape
// and place. Its text follows from the model alone, so a reader compares it with its own and parses
// nothing.
//
// The cache is only a memory. A file that is missing or not exactly what it should be is made
// again; one that cannot be written (no room, no permission) costs a line on standard error, never
// the run. Files appear by an atomic rename: processes that start together each write their own,
// and the last one stays. How much is kept, and what goes first: engine/model/weight_files.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/model/weight_files.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine {

// Part of every file's name. Raise it when weight_matrix.cpp lays out or rounds differently or the
// file has other parts; older files of the same model and format are then removed.
inline constexpr int kWeightLayoutVersion = 3;

struct CachedMatrix {
  std::string name;  // of the source tensor
  WeightStorage storage;
  int out, in;
  size_t offset, bytes;  // within the block of memory that holds all matrices
};

// What a file is for and what it must hold.
struct CachedWeights {
  std::string model_hash, format;
  std::vector<CachedMatrix> matrices;
  size_t bytes = 0;    // of the block of memory
  std::string source;  // path of the model, for people; no part of what must be equal
};

class WeightCache {
 public:
  // `limit`: what the folder may take (weight_limit()); 0 = nothing is read or written.
  explicit WeightCache(const CachedWeights& contents, std::optional<int64_t> limit = std::nullopt);
  // "" when neither EVALRUN_HOME nor HOME is set; then nothing is read or written.
  const std::string& path() const { return path_; }
  size_t file_bytes() const;

  // Fills `weights` from the file and checks every byte. False when there is none, or, with a line
  // on standard error, when it is not as it should be; `weights` holds anything then.
  bool read(std::span<std::byte> weights, int n_threads);
  // Says on standard error what was kept or why not. Not kept: a file of more than the limit, of
  // more than the files in use leave of it, or of more than half of the free disk.
  void write(std::span<const std::byte> weights, int n_threads);
  // Keeps the file that was read or written from being removed, for as long as it lives.
  WeightFileHold take_hold() { return std::move(hold_); }

 private:
  std::string read_or_reason(std::span<std::byte> weights, int n_threads) const;
  std::string write_or_reason(std::span<const std::byte> weights, int n_threads);
  std::string make_room() const;
  void shrink(int64_t limit) const;
  void remove_older_layouts() const;

  std::string folder_, path_, stem_;  // stem_: the file's name up to the layout version
  std::string header_, source_, format_;
  size_t bytes_ = 0;
  int64_t limit_ = 0;
  WeightFileHold hold_;
};

}  // namespace evalrun::engine
