#include "methods/corpus/corpus_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::methods {
namespace {

static_assert(std::endian::native == std::endian::little, "corpora are mapped as they lie on disk");

constexpr char kMagic[8] = {'E', 'V', 'A', 'L', 'C', 'O', 'R', 'P'};
constexpr uint32_t kVersion = 1;
constexpr size_t kAlignment = 64;
constexpr size_t kHexBytes = 64;
constexpr const char* kRebuild = "build it again: evalrun corpus build";

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t kind;
  uint64_t file_bytes;
  uint32_t vocabulary_size;
  uint32_t n_sections;
  char vocabulary_hash[kHexBytes];  // hex, zeros when there is none
  char content_hash[kHexBytes];     // hex; itself and `check` taken as zeros
  uint64_t files, documents, tokens;
  uint32_t params[6];
  struct {
    uint64_t offset, bytes;
  } section[kMaxCorpusSections];
  char unused[296];
  uint64_t check;  // of the 1,016 bytes before it
};
static_assert(sizeof(Header) == 1024 && std::is_trivially_copyable_v<Header>);

std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string_view as_text(const Header& header) {
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

uint64_t check_of(const Header& header) {
  const std::string hex = base::sha256_hex(as_text(header).substr(0, offsetof(Header, check)));
  return std::stoull(hex.substr(0, 16), nullptr, 16);
}

// Over the header without its hashes and the hash of each section in turn.
template <typename SectionAt>
std::string content_hash(Header header, const SectionAt& section_at) {
  std::memset(header.content_hash, 0, sizeof header.content_hash);
  header.check = 0;
  std::string text(as_text(header));
  for (size_t i = 0; i < header.n_sections; ++i) text += base::sha256_hex(section_at(i));
  return base::sha256_hex(text);
}

std::string hex_field(const char (&field)[kHexBytes]) {
  return field[0] == '\0' ? "" : std::string(field, kHexBytes);
}

void set_hex_field(char (&field)[kHexBytes], const std::string& hex) {
  EVALRUN_CHECK(hex.empty() || hex.size() == kHexBytes, "a hash of {} digits", hex.size());
  std::copy(hex.begin(), hex.end(), field);
}

Header header_of(std::span<const uint8_t> bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

constexpr uint64_t round_up(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

const char* to_string(CorpusKind kind) {
  return kind == CorpusKind::kNgrams ? "ngrams" : "suffixes";
}

CorpusKind corpus_kind(std::string_view name) {
  for (const CorpusKind kind : {CorpusKind::kNgrams, CorpusKind::kSuffixes})
    if (name == to_string(kind)) return kind;
  throw base::usage_error(fmt::format("unknown kind of corpus '{}'", name),
                          base::suggest(name, {"ngrams", "suffixes"}));
}

CorpusFile::CorpusFile(const std::string& path) : file_(path) {
  const std::span<const uint8_t> bytes = file_.bytes();
  const size_t n_magic = std::min(bytes.size(), sizeof kMagic);
  if (n_magic == 0 || std::memcmp(bytes.data(), kMagic, n_magic) != 0)
    throw base::data_error(path, "", "is not a corpus file", "make one with evalrun corpus build");
  if (bytes.size() < sizeof(Header))
    damaged("header", fmt::format("cut off: {} bytes, expected {}", bytes.size(), sizeof(Header)));
  const Header header = header_of(bytes);
  if (header.version != kVersion)
    throw base::data_error(
        path, "version",
        fmt::format("written as format version {}, expected {}", header.version, kVersion),
        kRebuild);
  if (header.check != check_of(header)) damaged("header", "its checksum is wrong");
  // From here on the header is what some program wrote; it may still lie.
  if (header.file_bytes != bytes.size())
    damaged("size", fmt::format("{} bytes, expected {}", bytes.size(), header.file_bytes));
  info_.kind = static_cast<CorpusKind>(header.kind);
  if (info_.kind != CorpusKind::kNgrams && info_.kind != CorpusKind::kSuffixes)
    damaged("kind", fmt::format("unknown kind {}", header.kind));
  if (header.vocabulary_size < 1 || header.vocabulary_size > kMaxVocabulary)
    damaged("vocabulary size", fmt::format("{} ids", header.vocabulary_size));
  if (header.n_sections > kMaxCorpusSections)
    damaged("sections", fmt::format("{}, at most {}", header.n_sections, kMaxCorpusSections));
  uint64_t end = sizeof(Header);
  for (size_t i = 0; i < header.n_sections; ++i) {
    const auto& [offset, n] = header.section[i];
    if (offset != round_up(end) || offset > bytes.size() || n > bytes.size() - offset)
      damaged(fmt::format("section {}", i),
              fmt::format("{} bytes at {} of {}", n, offset, bytes.size()));
    sections_.push_back({offset, n});
    end = offset + n;
  }
  if (end != bytes.size()) damaged("sections", fmt::format("end at {} of {}", end, bytes.size()));
  info_.vocabulary = {hex_field(header.vocabulary_hash), static_cast<int>(header.vocabulary_size)};
  info_.source = {header.files, header.documents, header.tokens};
  std::copy(std::begin(header.params), std::end(header.params), info_.params.begin());
  info_.file_bytes = header.file_bytes;
  info_.content_hash = hex_field(header.content_hash);
}

CorpusFile::CorpusFile(const std::string& path, CorpusKind kind) : CorpusFile(path) {
  if (info_.kind == kind) return;
  throw base::data_error(
      path, "kind", fmt::format("holds {}, expected {}", to_string(info_.kind), to_string(kind)),
      fmt::format("build one with evalrun corpus build --kind {}", to_string(kind)));
}

std::span<const uint8_t> CorpusFile::section_bytes(size_t i, size_t unit) const {
  if (i >= sections_.size()) damaged(fmt::format("section {}", i), "is missing");
  const Section& s = sections_[i];
  if (s.bytes % unit != 0)
    damaged(fmt::format("section {}", i),
            fmt::format("{} bytes, not a multiple of {}", s.bytes, unit));
  return file_.bytes().subspan(s.offset, s.bytes);
}

void CorpusFile::verify() const {
  const Header header = header_of(file_.bytes());
  const std::string found =
      content_hash(header, [this](size_t i) { return as_text(section_bytes(i, 1)); });
  uint64_t end = sizeof(Header);
  bool zeros = true;  // what lies between the sections is in no hash
  for (const Section& s : sections_) {
    for (; end < s.offset; ++end) zeros = zeros && file_.bytes()[end] == 0;
    end = s.offset + s.bytes;
  }
  if (found != info_.content_hash || !zeros)
    damaged("content hash",
            fmt::format("{:.12}, expected {:.12}", zeros ? found : "bytes between sections",
                        info_.content_hash));
}

void CorpusFile::damaged(const std::string& where, const std::string& what) const {
  throw base::data_error(path(), where, fmt::format("the corpus is damaged: {}", what), kRebuild);
}

void write_corpus(const std::string& path, CorpusInfo& info,
                  std::span<const std::span<const uint8_t>> sections) {
  EVALRUN_CHECK(sections.size() <= kMaxCorpusSections, "{} sections", sections.size());
  Header header;
  std::memset(&header, 0, sizeof header);
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.version = kVersion;
  header.kind = static_cast<uint32_t>(info.kind);
  header.vocabulary_size = static_cast<uint32_t>(info.vocabulary.size);
  header.n_sections = static_cast<uint32_t>(sections.size());
  set_hex_field(header.vocabulary_hash, info.vocabulary.hash);
  header.files = info.source.files;
  header.documents = info.source.documents;
  header.tokens = info.source.tokens;
  std::copy(info.params.begin(), info.params.end(), header.params);

  static constexpr std::array<char, kAlignment> kZeros = {};
  std::vector<std::string_view> parts = {as_text(header)};
  uint64_t end = sizeof header;
  for (size_t i = 0; i < sections.size(); ++i) {
    const uint64_t offset = round_up(end);
    parts.emplace_back(kZeros.data(), offset - end);
    parts.push_back(as_text(sections[i]));
    header.section[i] = {offset, sections[i].size()};
    end = offset + sections[i].size();
  }
  header.file_bytes = end;
  info.file_bytes = end;
  info.content_hash = content_hash(header, [&](size_t i) { return as_text(sections[i]); });
  set_hex_field(header.content_hash, info.content_hash);
  header.check = check_of(header);
  base::write_file_atomic(path, parts);
}

}  // namespace evalrun::methods
