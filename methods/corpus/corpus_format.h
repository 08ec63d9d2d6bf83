// The container of corpora on disk: n-grams (methods/corpus/ngram_corpus.h) and suffixes
// (methods/corpus/suffix_corpus.h) counted over a text of token ids, made once by `evalrun corpus
// build` and mapped into memory by the methods that draft from them.
//
// Layout, little-endian: a header of 1,024 bytes (`Header` in corpus_format.cpp), then sections,
// each at a multiple of 64 bytes, zeros between them. The header holds the SHA-256 of the whole
// file, taken when it was written, and a checksum of its own: opening reads the header only,
// however large the file is, and finds every damage of it. What lies in the sections is checked
// where it is read (places within the file, ids within the vocabulary), so that damaged bytes give
// an error or another draft, never a crash; verify() reads everything and finds all damage.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/formats/mapped_file.h"

namespace evalrun::methods {

enum class CorpusKind : uint32_t { kNgrams = 1, kSuffixes = 2 };
const char* to_string(CorpusKind kind);  // "ngrams", "suffixes": also the extension of the files
CorpusKind corpus_kind(std::string_view name);  // throws usage_error

// What the ids of a corpus mean. Two are the same when an id means the same text: equal hashes
// (engine::Tokenizer::vocabulary_hash()), or, for made-up models without a tokenizer, no hash and
// the same number of ids.
struct Vocabulary {
  std::string hash;
  int size = 0;  // ids are 0..size-1
};
inline constexpr int kMaxVocabulary =
    (1 << 24) - 2;  // an id, or the separator after them, fits 3 bytes

// Where the text came from.
struct CorpusSource {
  uint64_t files = 0, documents = 0, tokens = 0;
};

struct CorpusInfo {
  CorpusKind kind = CorpusKind::kNgrams;
  Vocabulary vocabulary;
  CorpusSource source;
  std::array<uint32_t, 6> params = {};  // their meaning is the kind's
  uint64_t file_bytes = 0;
  std::string content_hash;  // SHA-256 of header (without hash) and sections, hex
};

inline constexpr size_t kMaxCorpusSections = 32;

// A corpus file of any kind, opened. Throws data_error (file, field, remedy) for anything that is
// missing, cut off, of another version or no corpus at all.
class CorpusFile {
 public:
  explicit CorpusFile(const std::string& path);
  CorpusFile(const std::string& path, CorpusKind kind);  // data_error for another kind

  const std::string& path() const { return file_.path(); }
  const CorpusInfo& info() const { return info_; }
  size_t sections() const { return sections_.size(); }

  // Section i as values of type T; data_error when it holds no whole number of them.
  template <typename T>
  std::span<const T> section(size_t i) const {
    const std::span<const uint8_t> bytes = section_bytes(i, sizeof(T));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // Reads the whole file; data_error when its bytes are not those that were written.
  void verify() const;
  // Reads the file into memory, as far as there is room, so that drafting waits neither for a disk
  // nor for page faults, which would be taken for its cost.
  void load() const { file_.populate(file_.bytes()); }
  [[noreturn]] void damaged(const std::string& where, const std::string& what) const;

 private:
  struct Section {
    uint64_t offset, bytes;
  };
  std::span<const uint8_t> section_bytes(size_t i, size_t unit) const;

  engine::MappedFile file_;
  CorpusInfo info_;
  std::vector<Section> sections_;
};

// Writes header and sections to `path` by way of a temporary file, so that a reader sees all of it
// or nothing. Fills in info.file_bytes and info.content_hash. Throws data_error (no space, no
// permission).
void write_corpus(const std::string& path, CorpusInfo& info,
                  std::span<const std::span<const uint8_t>> sections);

template <typename T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace evalrun::methods
