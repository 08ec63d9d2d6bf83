// Which prompts of evaluation sets stand in another text, such as one to train on.
//
// As GPT-3's appendix C looks for test text (Brown et al. 2020, arXiv 2005.14165): a word is what
// stands between white space, in lower case and without punctuation. A prompt overlaps if 13 of its
// words in a row stand in the text. What is ours:
//
//   - A turn of 8 to 12 words is one gram of that length. 8 is the shortest that the paper uses.
//   - A turn of fewer words overlaps where it is a text on its own, such as a whole message.
//   - Five words in a row that more than half of a set's prompts share (and more than ten groups of
//     them) are the wording of that set ("You are an expert Python programmer, and here is your
//     task"). A turn is cut there, and each piece is looked for. So is a gram of more than ten
//     groups: it shows nothing.
//   - Of scripts without spaces (Han, kana, Thai), every character is a word.
//   - Nothing is cut out around a gram: a document has one or not.
//
// Grams are compared as hashes of 64 bits. Memory is proportional to the prompts, time to the text.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/dataset.h"

namespace evalrun::datasets {

inline constexpr int kGramWords = 13, kFewestGramWords = 8, kWordingGroups = 10;

// Hashes of the words of a text that comes in pieces, cut anywhere.
class WordHashes {
 public:
  // Appends the words that end inside this piece.
  void push(std::string_view piece, std::vector<uint64_t>& words);
  // The text ends here; the next piece begins another.
  void finish(std::vector<uint64_t>& words);

 private:
  void take(char32_t code, std::vector<uint64_t>& words);
  void end_word(std::vector<uint64_t>& words);

  std::string pending_;  // the beginning of a character
  uint64_t word_ = 0;
  bool in_word_ = false;
};

// The grams of all prompts that are looked for.
class PromptGrams {
 public:
  struct Set {
    std::string name, verification;
    int64_t n_prompts = 0;
  };
  // All prompts of a set, by all their turns.
  void add(const LoadedDataset& loaded);
  // After the last set.
  void finish();

  const std::vector<Set>& sets() const { return sets_; }
  size_t n_prompts() const { return prompts_.size(); }
  const Set& set_of(uint32_t prompt) const { return sets_[set_index(prompt)]; }
  size_t set_index(uint32_t prompt) const { return prompts_[prompt].set; }
  const std::string& id_of(uint32_t prompt) const { return prompts_[prompt].id; }
  // Appends the prompts that have this gram.
  void find(uint64_t gram, std::vector<uint32_t>& prompts) const;
  // Whether any gram has so many words.
  bool has_length(int words) const { return lengths_[static_cast<size_t>(words)]; }

 private:
  struct PromptPlace {
    std::string id;
    uint32_t set = 0, group = 0;
  };
  struct Entry {
    uint64_t gram = 0;
    uint32_t prompt = 0;
    auto operator<=>(const Entry&) const = default;
  };
  void add_grams(uint32_t prompt, std::span<const uint64_t> words);
  void drop_wording();

  std::vector<Set> sets_;
  std::vector<PromptPlace> prompts_;
  std::vector<Entry> entries_;    // ascending
  std::vector<uint64_t> filter_;  // a bit is set where a gram may be: most words end here
  int filter_shift_ = 0;
  uint32_t n_groups_ = 0;
  std::array<bool, kGramWords + 1> lengths_ = {};
};

// Looks for prompts in one text of many documents.
class OverlapSearch {
 public:
  explicit OverlapSearch(const PromptGrams& grams)
      : grams_(grams), found_(grams.n_prompts(), false) {}
  // A piece of a text of the document; no gram goes on from one text to the next.
  void push(std::string_view piece);
  void end_text();
  // The prompts that the document overlaps with, ascending.
  std::vector<uint32_t> end_document();

  int64_t n_words() const { return n_words_; }
  const std::vector<bool>& found() const { return found_; }  // [prompt], in all documents so far

 private:
  void look_up_words();
  void sort_hits();

  const PromptGrams& grams_;
  WordHashes reader_;
  std::vector<uint64_t> words_;  // read and not yet looked up
  // Hashes of the text up to its last words, the newest at n_in_text_ % size.
  std::array<uint64_t, 16> prefixes_ = {};
  int64_t n_in_text_ = 0, n_words_ = 0;
  std::vector<uint32_t> hits_;  // of the document
  std::vector<bool> found_;
};

struct OverlapExample {
  int64_t line = 0;  // of a JSON Lines file; 0 of a plain text
  std::string set, prompt;
};

struct OverlapReport {
  std::string file, sha256;
  int64_t n_documents = 0, n_words = 0, n_overlapping = 0;  // documents
  std::vector<int64_t> prompts;                             // [set]: those that overlap
  std::vector<OverlapExample> examples;                     // the first ones
};

// A .jsonl file by the strings of each line, any other as one text; gzip is seen by content. `line`
// gets every line of JSON Lines and whether it overlaps. Throws data_error with file and line.
OverlapReport find_overlap(
    const std::string& path, const PromptGrams& grams,
    const std::function<void(std::string_view line, bool overlaps)>& line = {});

// Whether find_overlap() reads a file of this name line by line.
bool is_lines_of_json(std::string_view path);

// The specs of all registered sets whose files are there, each prompt once: built-in ones are
// there. Names of the others go to `missing`.
std::vector<std::string> present_datasets(const std::string& data_root,
                                          std::vector<std::string>& missing);

}  // namespace evalrun::datasets
