// Tokenizers in Hugging Face folders: tokenizer.json holds the tokenizer itself;
// tokenizer_config.json, config.json and generation_config.json name the begin token and the tokens
// that end a generation. `truncation` and `padding` are settings for batches and are not applied,
// as transformers does.
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_fields.h"
#include "engine/base/text.h"
#include "engine/tokenizer/files/json_components.h"
#include "engine/tokenizer/pipeline_tokenizer.h"
#include "engine/tokenizer/subword/bpe.h"

namespace evalrun::engine {
namespace {

using base::ObjectReader;
using nlohmann::json;

const json& field_or_null(const json& object, const char* key) {
  static const json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

class JsonReader {
 public:
  explicit JsonReader(const std::string& folder)
      : folder_(folder), file_(folder + "/tokenizer.json") {}

  TokenizerParts read();

 private:
  int32_t checked_id(const std::string& file, const std::string& field, int64_t id) const;
  void read_added_tokens(const json& list);
  // model.vocab and the added tokens together must give the ids 0 to n - 1, each once.
  void read_vocabulary(const json& model);
  void read_model(const json& model);
  // "a b" (older files) or ["a", "b"] (newer ones, where parts may hold spaces).
  static std::vector<std::pair<std::string, std::string>> read_merges(ObjectReader& reader);
  void read_side_files();

  template <typename Use>
  void read_side_file(const std::string& name, Use use);
  // "</s>" or {"content": "</s>", ...} or null.
  std::optional<int32_t> named_token(const json& root, const char* key,
                                     const std::string& file) const;
  // 2 or [2, 3] or null.
  std::vector<int32_t> id_list(const json& root, const char* key, const std::string& file) const;

  std::string folder_, file_;
  TokenizerParts parts_;
  bool tokenizer_config_seen_ = false;  // it says whether there is a begin token
};

TokenizerParts JsonReader::read() {
  if (!std::filesystem::exists(file_))
    throw base::data_error(file_, "", "does not exist",
                           "a model folder needs tokenizer.json; tokenizers as tokenizer.model "
                           "alone can be converted with transformers or read from a GGUF file");
  const json root = base::parse_json(base::read_file(file_), file_);
  if (!root.is_object()) throw base::data_error(file_, "", "must hold a JSON object");
  read_added_tokens(field_or_null(root, "added_tokens"));
  const json& model = field_or_null(root, "model");
  read_vocabulary(model);
  parts_.normalizer = read_json_normalizer(field_or_null(root, "normalizer"), file_);
  parts_.pre_tokenizer = read_json_pre_tokenizer(field_or_null(root, "pre_tokenizer"), file_);
  parts_.decode = read_json_decoder(field_or_null(root, "decoder"), file_);
  read_model(model);
  const JsonTemplate around =
      read_json_post_processor(field_or_null(root, "post_processor"), file_);
  for (int32_t id : around.before) parts_.before.push_back(checked_id(file_, "post_processor", id));
  for (int32_t id : around.after) parts_.after.push_back(checked_id(file_, "post_processor", id));
  read_side_files();
  return std::move(parts_);
}

int32_t JsonReader::checked_id(const std::string& file, const std::string& field,
                               int64_t id) const {
  if (id < 0 || id >= parts_.vocabulary->size())
    throw base::data_error(
        file, field,
        fmt::format("{} is not a token id (the vocabulary has {})", id, parts_.vocabulary->size()));
  return static_cast<int32_t>(id);
}

// --- tokenizer.json ------------------------------------------------------------------------------

void JsonReader::read_added_tokens(const json& list) {
  if (list.is_null()) return;
  if (!list.is_array()) throw base::data_error(file_, "added_tokens", "must be an array");
  for (size_t i = 0; i < list.size(); ++i) {
    ObjectReader reader(list[i], file_, fmt::format("added_tokens[{}]", i));
    AddedToken token;
    token.id = reader.required<int32_t>("id");
    token.content = reader.required<std::string>("content");
    token.single_word = reader.optional<bool>("single_word", false);
    token.lstrip = reader.optional<bool>("lstrip", false);
    token.rstrip = reader.optional<bool>("rstrip", false);
    token.special = reader.optional<bool>("special", false);
    token.normalized = reader.optional<bool>("normalized", !token.special);
    parts_.added.push_back(std::move(token));
  }
}

void JsonReader::read_vocabulary(const json& model) {
  ObjectReader reader(model, file_, "model");
  const auto type = reader.optional<std::string>("type", "BPE");
  if (type != "BPE")
    reader.fail("type", fmt::format("is '{}', which is not supported", type), "known: BPE");
  const json* vocab = reader.raw("vocab");
  if (vocab == nullptr || !vocab->is_object()) reader.fail("vocab", "must be an object");
  ObjectReader ids(*vocab, file_, "model.vocab");
  std::vector<std::pair<int32_t, std::string>> entries;
  for (const auto& item : vocab->items())
    entries.emplace_back(ids.required<int32_t>(item.key()), item.key());
  for (const AddedToken& token : parts_.added) {
    const auto known = vocab->find(token.content);
    if (known == vocab->end())
      entries.emplace_back(token.id, token.content);
    else if (known->get<int64_t>() != token.id)
      throw base::data_error(file_, "added_tokens",
                             fmt::format("'{}' has id {}, but id {} in model.vocab", token.content,
                                         token.id, known->get<int64_t>()));
  }
  std::sort(entries.begin(), entries.end());
  std::vector<std::string> tokens;
  for (auto& [id, text] : entries) {
    const auto expected = static_cast<int64_t>(tokens.size());
    if (id < expected && id >= 0)
      throw base::data_error(
          file_, "model.vocab",
          fmt::format("'{}' and '{}' have the same id {}", tokens.back(), text, id));
    if (id != expected)
      throw base::data_error(
          file_, "model.vocab",
          fmt::format("'{}' has id {}, but no token has id {}", text, id, expected),
          "ids must run from 0 without a gap; the file is truncated or was edited");
    tokens.push_back(std::move(text));
  }
  if (tokens.empty()) reader.fail("vocab", "is empty");
  parts_.vocabulary = std::make_shared<Vocabulary>(std::move(tokens), file_, "model.vocab");
  parts_.n_hashed_tokens = parts_.vocabulary->size();
}

void JsonReader::read_model(const json& model) {
  ObjectReader reader(model, file_, "model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!reader.optional<std::string>(key, "").empty()) reader.fail(key, "is not supported");
  if (reader.optional<double>("dropout", 0.0) != 0.0)
    reader.fail("dropout", "is not 0: encoding would be random",
                "set it to null; dropout is for training");
  BpeOptions options;
  options.byte_fallback = reader.optional<bool>("byte_fallback", false);
  options.fuse_unk = reader.optional<bool>("fuse_unk", false);
  options.ignore_merges = reader.optional<bool>("ignore_merges", false);
  const auto unk = reader.optional<std::string>("unk_token", "");
  if (!unk.empty()) {
    options.unk_id = parts_.vocabulary->find(unk);
    if (!options.unk_id)
      reader.fail("unk_token", fmt::format("'{}' is not in the vocabulary", unk));
  }
  const auto merges = read_merges(reader);
  parts_.model =
      std::make_unique<BpeModel>(parts_.vocabulary, merges, options, file_, "model.merges");
  if (parts_.decode.byte_alphabet) parts_.hashed_merges = merges;
}

std::vector<std::pair<std::string, std::string>> JsonReader::read_merges(ObjectReader& reader) {
  const json* list = reader.raw("merges");
  if (list == nullptr || !list->is_array()) reader.fail("merges", "must be an array");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list->size());
  for (size_t rank = 0; rank < list->size(); ++rank) {
    const json& merge = (*list)[rank];
    const auto fail = [&] {
      reader.fail(fmt::format("merges[{}]", rank),
                  "must be \"left right\" or [\"left\", \"right\"]");
    };
    if (merge.is_array()) {
      if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) fail();
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      if (!merge.is_string()) fail();
      const std::vector<std::string> parts = base::split(merge.get_ref<const std::string&>(), ' ');
      if (parts.size() != 2) fail();
      merges.emplace_back(parts[0], parts[1]);
    }
    if (merges.back().first.empty() || merges.back().second.empty()) fail();
  }
  return merges;
}

// --- the files beside it -------------------------------------------------------------------------

void JsonReader::read_side_files() {
  read_side_file("tokenizer_config.json", [this](const json& root, const std::string& file) {
    if (const auto id = named_token(root, "bos_token", file)) parts_.bos_id = id;
    if (const auto id = named_token(root, "eos_token", file)) parts_.stop_ids.push_back(*id);
  });
  for (const char* name : {"config.json", "generation_config.json"})
    read_side_file(name, [this](const json& root, const std::string& file) {
      for (int32_t id : id_list(root, "eos_token_id", file)) parts_.stop_ids.push_back(id);
      const auto bos = id_list(root, "bos_token_id", file);
      // Qwen's config.json names a begin token that its tokenizer does not have; the tokenizer's
      // own word counts where there is one.
      if (!bos.empty() && !parts_.bos_id && !tokenizer_config_seen_) parts_.bos_id = bos[0];
    });
}

template <typename Use>
void JsonReader::read_side_file(const std::string& name, Use use) {
  const std::string file = folder_ + "/" + name;
  if (!std::filesystem::exists(file)) return;
  const json root = base::parse_json(base::read_file(file), file);
  if (!root.is_object()) throw base::data_error(file, "", "must hold a JSON object");
  use(root, file);
  if (name == "tokenizer_config.json") tokenizer_config_seen_ = root.contains("bos_token");
}

std::optional<int32_t> JsonReader::named_token(const json& root, const char* key,
                                               const std::string& file) const {
  const json& value = field_or_null(root, key);
  if (value.is_null()) return std::nullopt;
  std::string text;
  if (value.is_string())
    text = value.get<std::string>();
  else
    text = ObjectReader(value, file, key).required<std::string>("content");
  const auto id = parts_.vocabulary->find(text);
  if (!id)
    throw base::data_error(file, key, fmt::format("'{}' is not in the vocabulary", text),
                           "tokenizer.json and tokenizer_config.json must belong together");
  return id;
}

std::vector<int32_t> JsonReader::id_list(const json& root, const char* key,
                                         const std::string& file) const {
  const json& value = field_or_null(root, key);
  std::vector<int32_t> ids;
  if (value.is_null()) return ids;
  for (const json& item : value.is_array() ? value : json::array({value})) {
    if (!item.is_number_integer())
      throw base::data_error(file, key, "must be a token id or a list of token ids");
    // Beyond int64 a JSON number reads as unsigned; as a token id it is out of range all the
    // same.
    const bool huge =
        item.is_number_unsigned() && item.get<uint64_t>() > std::numeric_limits<int32_t>::max();
    ids.push_back(
        checked_id(file, key, huge ? std::numeric_limits<int64_t>::max() : item.get<int64_t>()));
  }
  return ids;
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_folder(const std::string& folder) {
  return std::make_shared<PipelineTokenizer>(JsonReader(folder).read());
}

}  // namespace evalrun::engine
