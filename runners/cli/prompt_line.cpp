#include "runners/cli/prompt_line.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::cli {
namespace {

// The chat, followed by an assistant's `answer`. Without one it is open for an answer.
std::string render_messages(const JsonlReader& reader, const nlohmann::json& messages,
                            const engine::Model& model,
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
  if (answer) chat.push_back({"assistant", *answer});
  try {
    return model.chat_template()->render(chat, !answer);
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

std::vector<int32_t> read_answer(const JsonlReader& reader, const nlohmann::json& object,
                                 const engine::Model& model) {
  if (!object.contains("messages"))
    reader.fail("field 'answer' needs 'messages'",
                "the chat template says what an answer ends with; put the prompt into messages");
  const std::string answer(base::trim(reader.text(object, "answer")));
  if (answer.empty()) reader.fail("field 'answer' is empty", "leave the line out");
  const nlohmann::json& messages = object.at("messages");
  const std::string prompt = render_messages(reader, messages, model);
  const std::string whole = render_messages(reader, messages, model, answer);
  const engine::Tokenizer& tokenizer = *model.tokenizer();
  engine::EncodeOptions plain, special;
  plain.parse_special = false;
  const std::vector<int32_t> of_answer = tokenizer.encode(answer, plain);
  if (tokenizer.encode(answer, special) != of_answer)
    reader.fail("field 'answer' holds the text of a special token", "leave the line out");
  std::vector<int32_t> behind;  // the prompt
  if (whole.starts_with(prompt + answer)) {
    behind = of_answer;
    const auto end = tokenizer.encode(whole.substr(prompt.size() + answer.size()), special);
    behind.insert(behind.end(), end.begin(), end.end());
  } else {
    // A space between the two (Llama 2, Vicuna, Mistral), which is the answer's first token's.
    special.add_special = model.chat_template()->add_special();
    const std::vector<int32_t> all = tokenizer.encode(whole, special);
    const std::vector<int32_t> front = tokenizer.encode(prompt, special);
    const bool spaced =
        base::trim(whole).starts_with(std::string(base::trim(prompt)) + " " + answer);
    if (!spaced || all.size() < front.size() ||
        !std::equal(front.begin(), front.end(), all.begin()))
      reader.fail(
          "the model's chat template does not put field 'answer' where it leaves a prompt open",
          "answers of data sets cannot be used with it; --answers self can");
    behind.assign(all.begin() + static_cast<std::ptrdiff_t>(front.size()), all.end());
  }
  const std::vector<int32_t>& stops = tokenizer.stop_ids();
  const auto stop = std::find_first_of(behind.begin(), behind.end(), stops.begin(), stops.end());
  if (stop == behind.end())
    reader.fail("the model's chat template ends an answer with none of its stop tokens",
                "answers of data sets cannot be used with it; --answers self can");
  behind.erase(stop + 1, behind.end());
  return behind;
}

}  // namespace evalrun::cli
