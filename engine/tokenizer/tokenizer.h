// Text to token ids and back: byte-level BPE and SentencePiece-style BPE, read from a GGUF file or from
// tokenizer.json. Immutable and safe to share between threads.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::engine {

class GgufFile;

struct EncodeOptions {
  bool parse_special = true;  // special tokens written in the text become their ids (as Hugging Face)
  bool add_special = false;   // add what the model adds around a text (begin token, ...)
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  // Bytes a token stands for; may end inside a UTF-8 character. Special tokens give their text, or
  // nothing when skip_special.
  virtual std::string token_bytes(int32_t id, bool skip_special = false) const = 0;
  // Whole text; invalid UTF-8 becomes U+FFFD by the maximal-subpart rule. Equals Hugging Face's decode
  // (clean_up_tokenization_spaces=false), SentencePiece's stripped first space included.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;

  virtual int vocab_size() const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token_text) const = 0;  // exact token text
  // Tokens that end a generation (eos and the family's end-of-turn tokens), ascending.
  virtual const std::vector<int32_t>& stop_ids() const = 0;
  // SHA-256 over vocabulary and merges: two models may speculate together iff it is equal.
  virtual const std::string& vocabulary_hash() const = 0;
};

// Text as it becomes final: holds back bytes of an unfinished character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string push(int32_t id);  // newly complete text
  std::string finish();          // what is left, invalid bytes replaced

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::string pending_;
};

// Throws data_error naming the key or field.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file);
// FOLDER holds tokenizer.json (and tokenizer_config.json, generation_config.json, config.json for the
// begin and stop tokens when present).
std::shared_ptr<const Tokenizer> tokenizer_from_folder(const std::string& folder);

}  // namespace evalrun::engine
