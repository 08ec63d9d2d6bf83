// How a model reads a conversation: by its own template, by one in a file, or by a named one. Named
// templates are written as code (chat_styles.h): they are the forms that papers measured with, and
// stand in for a model without a template.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evalrun::engine {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // "chatml-smollm2", "llama3", ... Of a template in Jinja: the named one that writes the same, or
  // else "jinja-" and the beginning of its hash.
  virtual std::string name() const = 0;
  // The prompt text, special tokens written out (encode with parse_special). With
  // add_generation_prompt it ends where the assistant's answer begins. Throws usage_error for a
  // conversation the template cannot express.
  virtual std::string render(const std::vector<ChatMessage>& messages,
                             bool add_generation_prompt) const = 0;
  // Whether the tokenizer must still add the begin token (the text does not hold it).
  virtual bool add_special() const = 0;
  // Of a template in Jinja, else empty: the SHA-256 of its text, where it was read, and the date
  // that it was told ("2024-07-26") if it asks for one.
  virtual std::string sha256() const { return {}; }
  virtual std::string place() const { return {}; }
  virtual std::string date() const { return {}; }
};

std::vector<std::string> chat_template_names();
std::shared_ptr<const ChatTemplate> chat_template_by_name(std::string_view name);  // usage_error

// Tokens a template may refer to, by the names that transformers gives them ("bos_token"). One that
// the model lacks is left out.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

// A template in Jinja, rendered as transformers does: `tools` and `documents` are none, the date is
// fixed, and the text is read without a further begin token. `place` is the file, for messages.
// Throws data_error with the line when the text is no template.
std::shared_ptr<const ChatTemplate> chat_template_from_jinja(std::string_view source,
                                                             const SpecialTokens& tokens,
                                                             const std::string& place);

}  // namespace evalrun::engine
