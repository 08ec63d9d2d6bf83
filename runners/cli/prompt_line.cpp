#include "runners/cli/prompt_line.h"

#include "engine/base/error.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::cli {
namespace {

// The chat, open for an answer.
std::string render_messages(const JsonlReader& reader, const nlohmann::json& messages,
                            const engine::Model& model) {
  if (model.chat_template() == nullptr) throw base::usage_error(model.chat_template_error());
  if (!messages.is_array() || messages.empty())
    reader.fail("field 'messages' must be a non-empty array of {\"role\", \"content\"}");
  std::vector<engine::ChatMessage> chat;
  for (const nlohmann::json& m : messages) {
    const bool complete = m.is_object() && m.contains("role") && m["role"].is_string() &&
                          m.contains("content") && m["content"].is_string();
    if (!complete)
      reader.fail(fmt::format("field 'messages[{}]' must be {{\"role\": text, \"content\": text}}",
                              chat.size()));
    chat.push_back({m["role"].get<std::string>(), m["content"].get<std::string>()});
  }
  try {
    return model.chat_template()->render(chat, true);
  } catch (const base::Error& e) {  // the template does not know which line it came from
    reader.fail(e.message(), e.hint());
  }
}

}  // namespace

std::vector<int32_t> read_prompt(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model) {
  const int given = static_cast<int>(object.contains("prompt")) +
                    static_cast<int>(object.contains("messages")) +
                    static_cast<int>(object.contains("tokens"));
  if (given != 1)
    reader.fail(
        fmt::format("needs exactly one of the fields 'prompt', 'messages' and 'tokens', "
                    "found {}",
                    given));
  std::vector<int32_t> tokens;
  if (object.contains("tokens")) {
    tokens = reader.tokens(object, "tokens", model.config().vocab_size);
  } else {
    engine::EncodeOptions encode;
    encode.add_special = true;  // a raw prompt is a document of its own
    std::string text;
    if (object.contains("prompt")) {
      text = reader.text(object, "prompt");
    } else {
      text = render_messages(reader, object.at("messages"), model);
      encode.add_special = model.chat_template()->add_special();
    }
    tokens = model.tokenizer()->encode(text, encode);
  }
  if (tokens.empty()) reader.fail("the prompt has no tokens", "give at least one");
  return tokens;
}

}  // namespace evalrun::cli
