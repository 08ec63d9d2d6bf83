#include "methods/model_draft/vocabulary_map.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

using engine::Tokenizer;

constexpr int32_t kNoToken = -1;
// Stop tokens of the known families by what they end (engine/tokenizer/pipeline_tokenizer.cpp).
constexpr std::array<std::string_view, 4> kTextEnds = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                                       "<eos>"};
constexpr std::array<std::string_view, 5> kTurnEnds = {"<|im_end|>", "<|eot_id|>", "<|end|>",
                                                       "<end_of_turn>", "<|end_of_turn|>"};

template <typename Names>
bool is_one_of(const Names& names, const std::string& text) {
  return std::find(names.begin(), names.end(), text) != names.end();
}
bool is_stop_id(const Tokenizer& tokenizer, int32_t id) {
  const std::vector<int32_t>& stop = tokenizer.stop_ids();
  return std::find(stop.begin(), stop.end(), id) != stop.end();
}

class VocabularyMatch {
 public:
  VocabularyMatch(const Tokenizer& target, int target_size, const Tokenizer& draft, int draft_size)
      : target_(target), draft_(draft) {
    map_.to_target.assign(static_cast<size_t>(draft_size), kNoToken);
    map_.to_draft.assign(static_cast<size_t>(target_size), kNoToken);
  }

  void match_texts() {
    const auto draft_of = by_bytes(draft_, map_.to_target.size());
    for (const auto& [bytes, id] : by_bytes(target_, map_.to_draft.size()))
      if (const auto found = draft_of.find(bytes); found != draft_of.end())
        map_.text_tokens += pair(id, found->second);
  }

  void match_special() {
    const auto size = static_cast<int32_t>(map_.to_draft.size());
    for (int32_t id = 0; id < size; ++id) {
      if (!target_.is_special(id)) continue;
      const auto same = draft_.id_of(target_.token_bytes(id));
      if (same && draft_.is_special(*same) && is_stop_id(target_, id) == is_stop_id(draft_, *same))
        pair(id, *same);
    }
    if (target_.bos_id() && draft_.bos_id()) pair(*target_.bos_id(), *draft_.bos_id());
    match_ends([](const std::string& text) { return is_one_of(kTurnEnds, text); });
    match_ends([](const std::string& text) { return is_one_of(kTextEnds, text); });
    if (target_.stop_ids().size() == 1 && draft_.stop_ids().size() == 1)
      pair(target_.stop_ids().front(), draft_.stop_ids().front());
  }

  VocabularyMap result() {
    for (size_t id = 0; id < map_.to_draft.size(); ++id) {
      if (map_.to_draft[id] == kNoToken) continue;
      map_.target_ids.push_back(static_cast<int32_t>(id));
      map_.draft_ids.push_back(map_.to_draft[id]);
    }
    return std::move(map_);
  }

 private:
  // The token of each text; where there are several, a byte-fallback token is the last choice.
  static std::unordered_map<std::string, int32_t> by_bytes(const Tokenizer& tokenizer,
                                                           size_t size) {
    std::unordered_map<std::string, int32_t> ids;
    const auto n = std::min(static_cast<int32_t>(size), tokenizer.vocab_size());
    for (int32_t id = 0; id < n; ++id) {
      if (tokenizer.is_special(id)) continue;
      std::string bytes = tokenizer.token_bytes(id);
      if (bytes.empty()) continue;
      const auto [at, is_new] = ids.emplace(std::move(bytes), id);
      if (!is_new && tokenizer.is_byte_token(at->second)) at->second = id;
    }
    return ids;
  }

  // Whether they are a pair now: both have their ids, and neither had a partner.
  bool pair(int32_t target, int32_t draft) {
    if (static_cast<size_t>(target) >= map_.to_draft.size() ||
        static_cast<size_t>(draft) >= map_.to_target.size())
      return false;
    int32_t& of_target = map_.to_draft[static_cast<size_t>(target)];
    int32_t& of_draft = map_.to_target[static_cast<size_t>(draft)];
    if (of_target != kNoToken || of_draft != kNoToken) return false;
    of_target = draft;
    of_draft = target;
    return true;
  }

  template <typename Ends>
  void match_ends(Ends ends) {
    for (const int32_t id : target_.stop_ids()) {
      if (!ends(target_.token_bytes(id))) continue;
      for (const int32_t other : draft_.stop_ids())
        if (ends(draft_.token_bytes(other)) && pair(id, other)) break;
    }
  }

  const Tokenizer& target_;
  const Tokenizer& draft_;
  VocabularyMap map_;
};

}  // namespace

double VocabularyMap::share() const {
  const size_t smaller = std::min(to_target.size(), to_draft.size());
  return smaller == 0 ? 0 : static_cast<double>(draft_ids.size()) / static_cast<double>(smaller);
}

VocabularyMap map_vocabularies(const Tokenizer& target, int target_size, const Tokenizer& draft,
                               int draft_size) {
  VocabularyMatch match(target, target_size, draft, draft_size);
  match.match_texts();
  match.match_special();
  return match.result();
}

std::string to_text(const VocabularyMap& map) {
  return fmt::format("{} of {} and {} tokens ({:.1f} %)", map.draft_ids.size(), map.to_draft.size(),
                     map.to_target.size(), 100 * map.share());
}

}  // namespace evalrun::methods
