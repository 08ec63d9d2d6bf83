// Prompts as the model sees them: chat template, tokens, and later turns that hold the model's own
// answers.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/model/model.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/stop_text.h"

namespace evalrun::runners {

class Conversation {
 public:
  // `chat_template` is for prompts that name none of their own (Prompt::chat_template). It may be
  // null: then such a chat prompt throws a usage_error with `template_problem`.
  Conversation(const engine::Tokenizer& tokenizer, const engine::ChatTemplate* chat_template,
               std::string template_problem);
  explicit Conversation(const engine::Model& model);  // data_error when it has no tokenizer

  // Text of turn answers.size(), the earlier answers in it. Raw prompts are the plain
  // concatenation.
  std::string render(const datasets::Prompt& prompt, const std::vector<std::string>& answers) const;
  std::vector<int32_t> encode(const datasets::Prompt& prompt, const std::string& text) const;
  // What an answer of this text would be, without a stop token; names of special tokens are text.
  std::vector<int32_t> encode_answer(const std::string& text) const;
  // The answer as text: special tokens skipped, invalid UTF-8 replaced.
  std::string decode(std::span<const int32_t> ids) const;
  // After each token, bytes of the answer's text so far; special tokens have none.
  std::vector<size_t> text_ends(std::span<const int32_t> ids) const;
  const std::vector<int32_t>& stop_ids() const { return tokenizer_.stop_ids(); }
  // Watches answers to `prompt`; nothing when it has no stop rules.
  std::optional<methods::StopText> stop_text(const datasets::Prompt& prompt) const;

 private:
  // Null for a chat prompt that has none.
  const engine::ChatTemplate* template_of(const datasets::Prompt& prompt) const;

  const engine::Tokenizer& tokenizer_;
  const engine::ChatTemplate* template_;
  std::string template_problem_;
};

// Length of the longest common prefix.
int common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace evalrun::runners
