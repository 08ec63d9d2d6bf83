// Text to token ids and back: byte-level BPE and SentencePiece-style BPE, read from a GGUF file or
// from tokenizer.json. Immutable and safe to share between threads.
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

// How the pieces of a decoded text are joined; what a StreamDecoder needs to know of a tokenizer.
struct DecodeRules {
  int strip_leading_spaces = 0;    // SentencePiece: at most this many spaces before the whole text
  bool strip_first_token = false;  // Metaspace: every space of the first token
  // Byte-fallback tokens stand for their bytes only if a whole run of them is valid UTF-8, else
  // each of them is one U+FFFD. Otherwise bytes of all tokens are joined and repaired together.
  bool whole_byte_runs = false;
};

struct EncodeOptions {
  bool parse_special =
      true;  // special tokens written in the text become their ids (as Hugging Face)
  bool add_special = false;  // add what the model adds around a text (begin token, ...)
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Ill-formed UTF-8 in `text` is read as U+FFFD.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;

  // Bytes a token stands for; may end inside a UTF-8 character. Special tokens give their text, or
  // nothing when skip_special. An id outside the vocabulary (models pad theirs) gives nothing.
  virtual std::string token_bytes(int32_t id, bool skip_special = false) const = 0;
  // Whole text, equal to Hugging Face's decode (clean_up_tokenization_spaces=false):
  // SentencePiece's stripped first space included, invalid UTF-8 as U+FFFD by the maximal-subpart
  // rule (byte-level BPE) or one for each token of a run of byte-fallback tokens (SentencePiece).
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;

  virtual int vocab_size() const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token_text) const = 0;  // exact token text
  // Tokens that end a generation (eos and the family's end-of-turn tokens), ascending.
  virtual const std::vector<int32_t>& stop_ids() const = 0;
  // SHA-256 over the token texts and, for byte-level BPE, the merges: two models may speculate
  // together iff it is equal. (SentencePiece order stands as scores in GGUF and as merges in
  // tokenizer.json, so there only the texts count and both files of a model give the same hash.)
  virtual const std::string& vocabulary_hash() const = 0;

  virtual DecodeRules decode_rules() const { return {}; }
  // Whether the token is a byte-fallback token ("<0x0A>"), whose one byte token_bytes gives.
  virtual bool is_byte_token(int32_t /*id*/) const { return false; }
};

// Text as it becomes final: holds back bytes of an unfinished character, and a run of byte-fallback
// tokens until it ends. All that push() and finish() return, joined, equals decode().
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer),
        skip_special_(skip_special),
        rules_(tokenizer.decode_rules()),
        spaces_to_strip_(rules_.strip_leading_spaces) {}
  std::string push(int32_t id);  // newly complete text
  std::string finish();          // what is left, invalid bytes replaced

 private:
  std::string take_complete();
  std::string take_byte_run();
  std::string strip(std::string text);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  DecodeRules rules_;
  int spaces_to_strip_;
  bool first_ = true;
  std::string pending_;
};

// Throws data_error naming the key or field.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file);
// FOLDER holds tokenizer.json (and tokenizer_config.json, generation_config.json, config.json for
// the begin and stop tokens when present).
std::shared_ptr<const Tokenizer> tokenizer_from_folder(const std::string& folder);

}  // namespace evalrun::engine
