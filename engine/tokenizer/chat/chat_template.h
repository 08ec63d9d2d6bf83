// Chat templates of the supported families, written as code and recognised from the Jinja text a
// model carries. An unknown template is an error that lists the names a user can choose from.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::engine {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  virtual std::string name() const = 0;  // "chatml-smollm2", "llama3", "mistral", ...
  // The prompt text, special tokens written out (encode with parse_special). With
  // add_generation_prompt it ends where the assistant's answer begins. Throws usage_error for a
  // conversation the template cannot express.
  virtual std::string render(const std::vector<ChatMessage>& messages,
                             bool add_generation_prompt) const = 0;
  // Whether the tokenizer must still add the begin token (the text does not hold it).
  virtual bool add_special() const = 0;
};

std::vector<std::string> chat_template_names();
std::shared_ptr<const ChatTemplate> chat_template_by_name(std::string_view name);  // usage_error
// From the Jinja source a model carries. Throws usage_error with the known names when it is none of
// the recognised ones. `bos` and `eos` are the token texts the template may refer to.
std::shared_ptr<const ChatTemplate> chat_template_from_jinja(std::string_view source,
                                                             const std::string& bos,
                                                             const std::string& eos);

}  // namespace evalrun::engine
