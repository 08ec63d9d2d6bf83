#include "datasets/overlap.h"

#include <utf8proc.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/base/utf8.h"

namespace evalrun::datasets {

namespace {

constexpr size_t kMostExamples = 10, kMostHits = 1 << 20;
constexpr size_t kPhraseWords = 5, kFewestPieceWords = 4;
constexpr unsigned kPieceBytes = 1 << 20;
constexpr uint64_t kWordFactor = 0x9E3779B97F4A7C15;  // odd, so invertible modulo 2^64

// kWordFactor to the power of n.
uint64_t word_factor(int n) {
  uint64_t power = 1;
  for (int i = 0; i < n; ++i) power *= kWordFactor;
  return power;
}

// The key of a gram of n words, given the hash of its words.
uint64_t gram_key(uint64_t hash, int n) {
  return base::mix64(hash + static_cast<uint64_t>(n) * 0xD6E8FEB86659FD93);
}

uint64_t phrase_key(std::span<const uint64_t> words, size_t first) {
  uint64_t hash = 0;
  for (size_t i = first; i < first + kPhraseWords; ++i) hash = hash * kWordFactor + words[i];
  return base::mix64(hash);
}

// Phrases of prompts of more than `most` groups.
std::unordered_set<uint64_t> frequent_phrases(std::vector<std::pair<uint64_t, uint32_t>>& phrases,
                                              size_t most) {
  std::sort(phrases.begin(), phrases.end());
  phrases.erase(std::unique(phrases.begin(), phrases.end()), phrases.end());
  std::unordered_set<uint64_t> frequent;
  for (size_t i = most; i < phrases.size(); ++i)
    if (phrases[i].first == phrases[i - most].first) frequent.insert(phrases[i].first);
  return frequent;
}

// What is left of a turn, in pieces, without the words of these phrases.
std::vector<std::span<const uint64_t>> pieces_without(const std::unordered_set<uint64_t>& phrases,
                                                      std::span<const uint64_t> words) {
  std::vector<bool> is_wording(words.size(), false);
  for (size_t i = 0; i + kPhraseWords <= words.size(); ++i)
    if (phrases.contains(phrase_key(words, i)))
      for (size_t k = i; k < i + kPhraseWords; ++k) is_wording[k] = true;
  std::vector<std::span<const uint64_t>> pieces;
  for (size_t i = 0; i < words.size(); ++i) {
    if (is_wording[i]) continue;
    const size_t first = i;
    while (i < words.size() && !is_wording[i]) ++i;
    pieces.push_back(words.subspan(first, i - first));
  }
  return pieces;
}

enum class CharKind : uint8_t { kSpace, kWord, kDropped };

CharKind kind_of_ascii(unsigned char c) {
  if (c == ' ' || (c >= '\t' && c <= '\r')) return CharKind::kSpace;
  const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return word ? CharKind::kWord : CharKind::kDropped;
}

CharKind kind_of_code(char32_t code) {
  if (code < 0x80) return kind_of_ascii(static_cast<unsigned char>(code));
  const utf8proc_category_t c = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  if (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NO) return CharKind::kWord;
  if (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP) return CharKind::kSpace;
  return code == 0x85 ? CharKind::kSpace : CharKind::kDropped;
}

bool is_without_spaces(char32_t c) {
  return (c >= 0x0E00 && c <= 0x0EFF) ||                                  // Thai, Lao
         (c >= 0x1000 && c <= 0x109F) ||                                  // Burmese
         (c >= 0x1780 && c <= 0x17FF) ||                                  // Khmer
         (c >= 0x3040 && c <= 0x30FF) ||                                  // kana
         (c >= 0x31F0 && c <= 0x31FF) || (c >= 0x3400 && c <= 0x9FFF) ||  // Han
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

// A file in pieces, gzip or not: a text of any size takes no more memory than one piece.
class TextPieces {
 public:
  explicit TextPieces(const std::string& path) : path_(path), buffer_(kPieceBytes, '\0') {
    if (std::filesystem::is_directory(path))
      throw base::data_error(path, "", "is a folder", "name the files in it");
    (void)std::filesystem::file_size(path, error_);
    if (error_) throw base::data_error(path, "", error_.message(), "give an existing file");
    file_.reset(gzopen(path.c_str(), "rb"));
    if (file_ == nullptr) throw base::data_error(path, "", "cannot be opened");
  }
  // Empty at the end.
  std::string_view next() {
    const int n = gzread(file_.get(), buffer_.data(), kPieceBytes);
    if (n > 0) return std::string_view(buffer_).substr(0, static_cast<size_t>(n));
    int code = Z_OK;
    const char* what = gzerror(file_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END)
      throw base::data_error(path_, "", fmt::format("damaged or truncated ({})", what),
                             "get the file again, or check what wrote it");
    return {};
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  std::string path_, buffer_;
  std::error_code error_;
  std::unique_ptr<gzFile_s, Close> file_;
};

std::string_view without_gz(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path;
}

// Every string within `value` is a text of its own.
void push_strings(const nlohmann::json& value, OverlapSearch& search) {
  if (value.is_string()) {
    search.push(value.get_ref<const std::string&>());
    search.end_text();
  }
  if (value.is_structured())
    for (const nlohmann::json& part : value) push_strings(part, search);
}

class OverlapFile {
 public:
  OverlapFile(const std::string& path, const PromptGrams& grams)
      : grams_(grams), search_(grams), pieces_(path) {
    report_.file = path;
  }

  void read_text() {
    for (std::string_view piece = pieces_.next(); !piece.empty(); piece = pieces_.next())
      search_.push(piece);
    search_.end_text();
    end_document(0);
  }

  void read_lines(const std::function<void(std::string_view line, bool overlaps)>& visit) {
    std::string rest;
    for (std::string_view piece = pieces_.next(); !piece.empty(); piece = pieces_.next()) {
      size_t begin = 0;
      for (size_t end; (end = piece.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
        rest.append(piece.substr(begin, end - begin));
        read_line(rest, visit);
        rest.clear();
      }
      rest.append(piece.substr(begin));
    }
    if (!rest.empty()) read_line(rest, visit);
  }

  OverlapReport finish() {
    report_.n_words = search_.n_words();
    report_.prompts.assign(grams_.sets().size(), 0);
    for (uint32_t p = 0; p < grams_.n_prompts(); ++p)
      if (search_.found()[p]) ++report_.prompts[grams_.set_index(p)];
    return std::move(report_);
  }

 private:
  void read_line(std::string_view text,
                 const std::function<void(std::string_view line, bool overlaps)>& visit) {
    ++line_;
    if (base::trim(text).empty()) return;
    const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
    if (!object.is_object())
      throw base::data_error(report_.file, fmt::format("line {}", line_), "is no JSON object",
                             "a .jsonl file holds one object a line");
    push_strings(object, search_);
    const bool overlaps = end_document(line_);
    if (visit) visit(text, overlaps);
  }

  bool end_document(int64_t line) {
    ++report_.n_documents;
    const std::vector<uint32_t> hits = search_.end_document();
    if (hits.empty()) return false;
    ++report_.n_overlapping;
    if (report_.examples.size() < kMostExamples)
      report_.examples.push_back({line, grams_.set_of(hits[0]).name, grams_.id_of(hits[0])});
    return true;
  }

  const PromptGrams& grams_;
  OverlapSearch search_;
  TextPieces pieces_;
  OverlapReport report_;
  int64_t line_ = 0;
};

// What `name` reads of its files that are there, "" when it can read nothing.
std::string spec_of_present(const std::string& name, const DatasetInfo& info,
                            const std::string& data_root) {
  if (info.files.empty()) return name;
  if (data_root.empty()) return "";
  const auto exists = [&](const std::string& file) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::path(data_root) / file, ignored);
  };
  if (info.files.size() == 1)
    return exists(info.files[0]) || std::ranges::any_of(info.alternatives, exists) ? name : "";
  std::vector<std::string> parts;
  for (size_t i = 0; i < info.files.size(); ++i)
    if (exists(info.files[i])) parts.push_back(info.parts[i]);
  if (parts.empty()) return "";
  return parts.size() == info.parts.size() ? name
                                           : fmt::format("{}[{}]", name, fmt::join(parts, ","));
}

}  // namespace

void WordHashes::push(std::string_view piece, std::vector<uint64_t>& words) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_ + std::string(piece);
    pending_.clear();
    piece = joined;
  }
  const size_t tail = base::utf8_incomplete_tail(piece);
  pending_.assign(piece.substr(piece.size() - tail));
  piece.remove_suffix(tail);
  while (!piece.empty()) {
    const auto c = static_cast<unsigned char>(piece.front());
    if (c < 0x80) {
      take(c, words);
      piece.remove_prefix(1);
      continue;
    }
    const base::Utf8Step step = base::utf8_step(piece);
    if (step.valid) take(step.code, words);
    piece.remove_prefix(step.length);
  }
}

void WordHashes::take(char32_t code, std::vector<uint64_t>& words) {
  const CharKind kind = kind_of_code(code);
  if (kind == CharKind::kSpace) return end_word(words);
  if (kind == CharKind::kDropped) return;
  const bool alone = is_without_spaces(code);
  if (alone) end_word(words);
  if (code >= 'A' && code <= 'Z')
    code += U'a' - U'A';
  else if (code >= 0x80)
    code = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
  if (!in_word_) word_ = 0xCBF29CE484222325;
  word_ = (word_ ^ code) * 0x100000001B3;
  in_word_ = true;
  if (alone) end_word(words);
}

void WordHashes::end_word(std::vector<uint64_t>& words) {
  if (in_word_) words.push_back(base::mix64(word_));
  in_word_ = false;
}

void WordHashes::finish(std::vector<uint64_t>& words) {
  end_word(words);
  pending_.clear();
}

void PromptGrams::add(const LoadedDataset& loaded) {
  std::unordered_map<std::string, uint32_t> groups;
  const uint32_t first_group = n_groups_;
  WordHashes reader;
  struct Turn {
    uint32_t prompt = 0;
    std::vector<uint64_t> words;
  };
  std::vector<Turn> turns;
  std::vector<std::pair<uint64_t, uint32_t>> phrases;  // of whose prompts, by group
  for (const Prompt& prompt : loaded.prompts) {
    uint32_t group = n_groups_;
    if (!prompt.group.empty()) group = groups.try_emplace(prompt.group, n_groups_).first->second;
    if (group == n_groups_) ++n_groups_;
    for (const std::string& text : prompt.turns) {
      Turn turn{static_cast<uint32_t>(prompts_.size()), {}};
      reader.push(text, turn.words);
      reader.finish(turn.words);
      for (size_t i = 0; i + kPhraseWords <= turn.words.size(); ++i)
        phrases.emplace_back(phrase_key(turn.words, i), group);
      turns.push_back(std::move(turn));
    }
    prompts_.push_back({prompt.id, static_cast<uint32_t>(sets_.size()), group});
  }
  const std::unordered_set<uint64_t> wording =
      frequent_phrases(phrases, std::max<size_t>(kWordingGroups, (n_groups_ - first_group) / 2));
  for (const Turn& turn : turns) {
    const auto pieces = pieces_without(wording, turn.words);
    for (const auto& piece : pieces)
      // A few words between fixed sentences are a task; one or two are what is left of a sentence.
      if (pieces.size() == 1 || piece.size() >= kFewestPieceWords) add_grams(turn.prompt, piece);
  }
  sets_.push_back({loaded.task, loaded.verification, static_cast<int64_t>(loaded.prompts.size())});
}

void PromptGrams::add_grams(uint32_t prompt, std::span<const uint64_t> words) {
  const size_t n = std::min<size_t>(words.size(), kGramWords);
  lengths_[n] = true;
  const uint64_t oldest = word_factor(static_cast<int>(n));
  uint64_t hash = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    hash = hash * kWordFactor + words[i];
    if (i >= n) hash -= oldest * words[i - n];
    if (i + 1 >= n) entries_.push_back({gram_key(hash, static_cast<int>(n)), prompt});
  }
}

void PromptGrams::finish() {
  std::sort(entries_.begin(), entries_.end());
  entries_.erase(std::unique(entries_.begin(), entries_.end()), entries_.end());
  drop_wording();
  // Eight bits for each gram: of the grams of other text, one in eight or fewer is looked up.
  const size_t bits = std::bit_ceil(std::max<size_t>(entries_.size() * 8, 64));
  filter_.assign(bits / 64, 0);
  filter_shift_ = 64 - std::countr_zero(bits);
  for (const Entry& entry : entries_) {
    const uint64_t bit = entry.gram >> filter_shift_;
    filter_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

void PromptGrams::drop_wording() {
  std::vector<Entry> kept;
  kept.reserve(entries_.size());
  std::vector<uint32_t> groups;
  const auto end = entries_.end();
  for (auto begin = entries_.begin(); begin != end;) {
    // Prompts of a set have neighbouring numbers, so entries of one gram and one set are a run.
    auto last = begin;
    groups.clear();
    while (last != end && last->gram == begin->gram &&
           set_index(last->prompt) == set_index(begin->prompt)) {
      groups.push_back(prompts_[last->prompt].group);
      ++last;
    }
    std::sort(groups.begin(), groups.end());
    if (std::unique(groups.begin(), groups.end()) - groups.begin() <= kWordingGroups)
      kept.insert(kept.end(), begin, last);
    begin = last;
  }
  entries_ = std::move(kept);
}

void PromptGrams::find(uint64_t gram, std::vector<uint32_t>& prompts) const {
  const uint64_t bit = gram >> filter_shift_;
  if (((filter_[bit / 64] >> (bit % 64)) & 1) == 0) return;
  auto it = std::lower_bound(entries_.begin(), entries_.end(), Entry{gram, 0});
  for (; it != entries_.end() && it->gram == gram; ++it) prompts.push_back(it->prompt);
}

void OverlapSearch::push(std::string_view piece) {
  reader_.push(piece, words_);
  look_up_words();
}

void OverlapSearch::look_up_words() {
  static const std::array<uint64_t, kGramWords + 1> kFactors = [] {
    std::array<uint64_t, kGramWords + 1> factors = {};
    for (int n = 0; n <= kGramWords; ++n) factors[static_cast<size_t>(n)] = word_factor(n);
    return factors;
  }();
  const auto at = [this](int64_t n) -> uint64_t& {
    return prefixes_[static_cast<size_t>(n) % prefixes_.size()];
  };
  for (const uint64_t word : words_) {
    const uint64_t hash = at(n_in_text_) * kWordFactor + word;
    at(++n_in_text_) = hash;
    ++n_words_;
    for (int n = kFewestGramWords; n <= kGramWords && n <= n_in_text_; ++n)
      if (grams_.has_length(n))
        grams_.find(gram_key(hash - at(n_in_text_ - n) * kFactors[static_cast<size_t>(n)], n),
                    hits_);
  }
  words_.clear();
  // A long text that holds a whole set must not take memory for every word of it.
  if (hits_.size() > kMostHits) sort_hits();
}

void OverlapSearch::sort_hits() {
  std::sort(hits_.begin(), hits_.end());
  hits_.erase(std::unique(hits_.begin(), hits_.end()), hits_.end());
}

void OverlapSearch::end_text() {
  reader_.finish(words_);
  look_up_words();
  if (n_in_text_ > 0 && n_in_text_ < kFewestGramWords)
    grams_.find(gram_key(prefixes_[static_cast<size_t>(n_in_text_)], static_cast<int>(n_in_text_)),
                hits_);
  n_in_text_ = 0;
  prefixes_[0] = 0;
}

std::vector<uint32_t> OverlapSearch::end_document() {
  sort_hits();
  std::vector<uint32_t> hits;
  hits.swap(hits_);
  for (const uint32_t prompt : hits) found_[prompt] = true;
  return hits;
}

bool is_lines_of_json(std::string_view path) { return without_gz(path).ends_with(".jsonl"); }

OverlapReport find_overlap(const std::string& path, const PromptGrams& grams,
                           const std::function<void(std::string_view line, bool overlaps)>& line) {
  if (without_gz(path).ends_with(".json"))
    throw base::data_error(path, "", "is one JSON document, not a text",
                           "scripts/train import writes official files as JSON Lines");
  OverlapFile file(path, grams);
  if (is_lines_of_json(path))
    file.read_lines(line);
  else
    file.read_text();
  OverlapReport report = file.finish();
  report.sha256 = base::sha256_file(path);
  return report;
}

std::vector<std::string> present_datasets(const std::string& data_root,
                                          std::vector<std::string>& missing) {
  std::vector<std::string> specs;
  std::set<std::string> read;
  for (const auto& [name, entry] : dataset_registry().entries()) {
    if (name == "samples") continue;  // all of samples/chat and so on
    // gsm_100 is a part of gsm8k.
    if (!entry.info.files.empty() && !read.insert(entry.info.files[0]).second) continue;
    const std::string spec = spec_of_present(name, entry.info, data_root);
    if (spec.empty())
      missing.push_back(name);
    else
      specs.push_back(spec);
  }
  return specs;
}

}  // namespace evalrun::datasets
