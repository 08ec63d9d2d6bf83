// Byte-pair encoding by merge rank (Sennrich 2016), as Hugging Face's `tokenizers` computes it.
//
// A word starts as its characters; the adjacent pair of lowest rank merges, leftmost first, until
// none is left. Candidates wait in a heap, so a megabyte without a space costs n log n and not n
// squared. Characters without a token are replaced by byte tokens (byte_fallback), by unk_id, or
// dropped, and that happens BEFORE merging: the neighbours of a dropped character can merge.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/tokenizer/subword/vocabulary.h"

namespace evalrun::engine {

struct BpeOptions {
  std::optional<int32_t> unk_id;
  bool byte_fallback = false;
  bool fuse_unk = false;       // neighbouring unknown characters become one unk_id
  bool ignore_merges = false;  // a word that is a token is that token, merges or not
};

class BpeModel final : public SubwordModel {
 public:
  // merges: (left, right) texts, rank = position; the later one counts where a pair stands twice
  // (as in `tokenizers`). Throws data_error naming file, field and position when a part or the
  // merged text is not in the vocabulary.
  BpeModel(std::shared_ptr<const Vocabulary> vocabulary,
           const std::vector<std::pair<std::string, std::string>>& merges, BpeOptions options,
           const std::string& file, const std::string& field);

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  struct Merge {
    int32_t rank;
    int32_t merged_id;
  };
  const Merge* find_merge(int32_t left, int32_t right) const;
  std::vector<int32_t> initial_ids(std::string_view word) const;
  void merge_all(std::vector<int32_t>& ids) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BpeOptions options_;
  std::vector<std::optional<int32_t>> byte_ids_;
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace evalrun::engine
