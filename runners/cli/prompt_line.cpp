#include "runners/cli/prompt_line.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/tokenizer/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::cli {
namespace {

// The chat, with an assistant's `answer` behind it when given and else open for one.
std::string render_messages(const JsonlReader& reader, const nlohmann::json& messages,
                            const engine::Model& model, const std::optional<std::string>& system,
                            const std::optional<std::string>& answer = {}) {
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
  if (system && chat.front().role != "system") chat.insert(chat.begin(), {"system", *system});
  if (answer) chat.push_back({"assistant", *answer});
  try {
    return model.chat_template()->render(chat, !answer);
  } catch (const base::Error& e) {  // the template does not know which line it came from
    reader.fail(e.message(), e.hint());
  }
}

}  // namespace

std::vector<int32_t> read_prompt(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model,
                                 const std::optional<std::string>& system) {
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
      text = render_messages(reader, object.at("messages"), model, system);
      encode.add_special = model.chat_template()->add_special();
    }
    tokens = model.tokenizer()->encode(text, encode);
  }
  if (tokens.empty()) reader.fail("the prompt has no tokens", "give at least one");
  return tokens;
}

std::vector<int32_t> read_answer(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model,
                                 const std::optional<std::string>& system) {
  if (!object.contains("messages"))
    reader.fail("field 'answer' needs 'messages'",
                "the chat template says what an answer ends with; put the prompt into messages");
  const std::string answer(base::trim(reader.text(object, "answer")));
  if (answer.empty()) reader.fail("field 'answer' is empty", "leave the line out");
  const nlohmann::json& messages = object.at("messages");
  const std::string prompt = render_messages(reader, messages, model, system);
  const std::string whole = render_messages(reader, messages, model, system, answer);
  if (!whole.starts_with(prompt + answer))
    reader.fail("the model's chat template changes field 'answer' or what is in front of it",
                "give another --chat-template");
  engine::EncodeOptions plain;
  plain.parse_special = false;
  std::vector<int32_t> tokens = model.tokenizer()->encode(answer, plain);
  const std::vector<int32_t>& stops = model.tokenizer()->stop_ids();
  for (const int32_t id :
       model.tokenizer()->encode(whole.substr(prompt.size() + answer.size()), {})) {
    tokens.push_back(id);
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) return tokens;
  }
  reader.fail("the model's chat template ends an answer with none of its stop tokens",
              "give another --chat-template");
}

}  // namespace evalrun::cli
