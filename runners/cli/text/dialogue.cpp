#include "runners/cli/text/dialogue.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::cli {
namespace {

constexpr const char* kLeaveOut = "leave the line out";
constexpr const char* kOrder =
    "write perhaps one system message, then user and assistant by turns, the user first";

}  // namespace

Dialogue::Dialogue(const JsonlReader& reader, const nlohmann::json& object,
                   std::shared_ptr<const engine::Model> model, bool given)
    : place_(reader.place()), model_(std::move(model)), given_(given) {
  if (model_->chat_template() == nullptr) throw base::usage_error(model_->chat_template_error());
  if (!object.contains("messages"))
    fail("field 'answer' needs 'messages'",
         "the chat template says what an answer ends with; put the prompt into messages");
  read_messages(object.at("messages"));
  if (given_) take_answers(reader, object);
}

void Dialogue::fail(const std::string& what, const std::string& hint) const {
  throw base::data_error(place_, "", what, hint);
}

void Dialogue::read_messages(const nlohmann::json& messages) {
  if (!messages.is_array() || messages.empty())
    fail("field 'messages' must be a non-empty array of {\"role\", \"content\"}");
  for (size_t i = 0; i < messages.size(); ++i) {
    const nlohmann::json& m = messages[i];
    const std::string field = fmt::format("field 'messages[{}]", i);
    const bool complete = m.is_object() && m.contains("role") && m["role"].is_string() &&
                          m.contains("content") && m["content"].is_string();
    if (!complete) fail(field + "' must be {\"role\": text, \"content\": text}");
    const auto role = m["role"].get<std::string>(), content = m["content"].get<std::string>();
    if (role == "system" && i == 0) {
      system_.push_back({role, content});
      continue;
    }
    const char* wanted = users_.size() == assistants_.size() ? "user" : "assistant";
    if (role != wanted)
      fail(fmt::format("{}.role' is '{}' where it must be '{}'", field, role, wanted), kOrder);
    if (base::trim(content).empty()) fail(field + ".content' is empty", kLeaveOut);
    if (role == "user")
      users_.push_back(content);
    else
      assistants_.emplace_back(base::trim(content));
  }
  if (users_.empty()) fail("field 'messages' has no message of the user", kOrder);
}

void Dialogue::take_answers(const JsonlReader& reader, const nlohmann::json& object) {
  const bool is_open = users_.size() > assistants_.size();
  if (object.contains("answer")) {
    if (!is_open)
      fail("field 'answer' stands beside 'messages' that end with the assistant's",
           "give the last answer once: in messages, or as answer");
    assistants_.emplace_back(base::trim(reader.text(object, "answer")));
    if (assistants_.back().empty()) fail("field 'answer' is empty", kLeaveOut);
  } else if (is_open) {
    if (assistants_.empty())
      fail("the dialogue has no turn of the assistant, and no field 'answer'",
           "add the answer, or let the model answer: --answers self");
    users_.pop_back();  // the user's last words, which nobody answers
  }
}

std::string Dialogue::render(const std::vector<engine::ChatMessage>& chat, bool open) const {
  try {
    return model_->chat_template()->render(chat, open);
  } catch (const base::Error& e) {  // the template does not know which line it came from
    fail(e.message(), e.hint());
  }
}

runners::CaptureTurn Dialogue::turn(std::span<const std::vector<int32_t>> answers) const {
  EVALRUN_CHECK(answers.size() < n_turns(), "turn {} of {}", answers.size(), n_turns());
  const engine::Tokenizer& tokenizer = *model_->tokenizer();
  std::vector<engine::ChatMessage> chat = system_;
  for (size_t t = 0; t <= answers.size(); ++t) {
    chat.push_back({"user", users_[t]});
    if (t < answers.size())
      chat.push_back({"assistant", given_ ? assistants_[t] : tokenizer.decode(answers[t], true)});
  }
  const std::string prompt = render(chat, true);
  engine::EncodeOptions encode;
  encode.add_special = model_->chat_template()->add_special();
  runners::CaptureTurn turn;
  turn.prompt = tokenizer.encode(prompt, encode);
  if (turn.prompt.empty()) fail("the prompt has no tokens", "give at least one");
  if (given_) turn.answer = encode_answer(std::move(chat), prompt, assistants_[answers.size()]);
  return turn;
}

std::vector<int32_t> Dialogue::encode_answer(std::vector<engine::ChatMessage> chat,
                                             const std::string& prompt,
                                             const std::string& answer) const {
  chat.push_back({"assistant", answer});
  const std::string whole = render(chat, false);
  const engine::Tokenizer& tokenizer = *model_->tokenizer();
  engine::EncodeOptions plain, special;
  plain.parse_special = false;
  const std::vector<int32_t> of_answer = tokenizer.encode(answer, plain);
  if (tokenizer.encode(answer, special) != of_answer)
    fail("an answer holds the text of a special token", kLeaveOut);
  std::vector<int32_t> behind;  // the prompt
  if (whole.starts_with(prompt + answer)) {
    behind = of_answer;
    const auto end = tokenizer.encode(whole.substr(prompt.size() + answer.size()), special);
    behind.insert(behind.end(), end.begin(), end.end());
  } else {
    // A space between the two (Llama 2, Vicuna, Mistral), which is the answer's first token's.
    special.add_special = model_->chat_template()->add_special();
    const std::vector<int32_t> all = tokenizer.encode(whole, special);
    const std::vector<int32_t> front = tokenizer.encode(prompt, special);
    const bool spaced =
        base::trim(whole).starts_with(std::string(base::trim(prompt)) + " " + answer);
    if (!spaced || all.size() < front.size() ||
        !std::equal(front.begin(), front.end(), all.begin()))
      fail("the model's chat template does not put an answer where it leaves a prompt open",
           "answers of data sets cannot be used with it; --answers self can");
    behind.assign(all.begin() + static_cast<std::ptrdiff_t>(front.size()), all.end());
  }
  const std::vector<int32_t>& stops = tokenizer.stop_ids();
  const auto stop = std::find_first_of(behind.begin(), behind.end(), stops.begin(), stops.end());
  if (stop == behind.end())
    fail("the model's chat template ends an answer with none of its stop tokens",
         "answers of data sets cannot be used with it; --answers self can");
  behind.erase(stop + 1, behind.end());
  return behind;
}

}  // namespace evalrun::cli
