// A text in the tokens of another tokenizer, as it grows.
//
// The tokens' bytes are joined and tokenized again. That is done word by word, so that a token more
// costs the tokenizing of the last word: a text is cut before a single space between two visible
// characters, where the pre-tokenizers of byte-level BPE cut as well, and which no token of
// SentencePiece's BPE crosses. What a cut gives depends on the text alone, not on when it was asked
// for. Another tokenization would be as lossless; it would be a worse context to draft from.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace evalrun::methods {

// Where the last word of a text begins: its leading space, or 0 when it is all one word.
size_t last_word(std::string_view text);

// Tokens of pieces of texts that were cut as above.
class PieceTokenizer {
 public:
  explicit PieceTokenizer(const engine::Tokenizer& tokenizer);
  // Appends the tokens of a piece. `at_start`: nothing came before it, or a special token.
  // Otherwise a first space is the one that the tokenizer puts there itself where it does that.
  void append(std::string_view piece, bool at_start, std::vector<int32_t>& ids) const;
  // Whether a piece can go on from any other: not by a tokenizer that would put a space before it.
  bool can_go_on(std::string_view piece) const {
    return !adds_space_ || (!piece.empty() && piece.front() == ' ');
  }
  // The token of one byte, where it has one.
  std::optional<int32_t> of_byte(char byte) const;
  const engine::Tokenizer& tokenizer() const { return tokenizer_; }
  bool adds_space() const { return adds_space_; }

 private:
  const engine::Tokenizer& tokenizer_;
  const bool adds_space_;  // before a text: SentencePiece
  std::array<int32_t, 256> bytes_;
};

// How one tokenizer's texts become another's tokens. Serves any number of texts.
struct Translation {
  const engine::Tokenizer* from = nullptr;
  const PieceTokenizer* to = nullptr;
  std::span<const int32_t> special;  // `to`'s token of each special id of `from`, or -1
};

class Retokenizer {
 public:
  explicit Retokenizer(const Translation& translation) : how_(translation) {}
  void start();  // with another text
  // The tokens of a text that begins with the one of the last call since start(). Valid until the
  // next call. A special token without a partner is tokenized as the text it is written as, but
  // for one that begins a text.
  std::span<const int32_t> follow(std::span<const int32_t> text);
  // Whether they are the whole text: not where it ends inside a character whose bytes `to` has no
  // tokens for.
  bool whole() const { return whole_; }

 private:
  void add_special(int32_t id);
  void close_words();
  void add_open();

  Translation how_;
  size_t seen_ = 0;    // tokens of the text
  std::string open_;   // what comes after the last cut
  bool fresh_ = true;  // nothing before open_, or a special token
  size_t closed_ = 0;  // of ids_: those before the last cut
  std::vector<int32_t> ids_;
  bool whole_ = true;
};

}  // namespace evalrun::methods
