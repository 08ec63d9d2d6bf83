#include "runners/plan/conversation.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

const engine::Tokenizer& tokenizer_of(const engine::Model& model) {
  if (model.tokenizer() == nullptr)
    throw base::data_error(model.path(), "tokenizer", "the model has none",
                           "prompts are text: use a file or folder that holds a tokenizer");
  return *model.tokenizer();
}

}  // namespace

Conversation::Conversation(const engine::Tokenizer& tokenizer,
                           const engine::ChatTemplate* chat_template, std::string template_problem)
    : tokenizer_(tokenizer),
      template_(chat_template),
      template_problem_(std::move(template_problem)) {}

Conversation::Conversation(const engine::Model& model)
    : Conversation(tokenizer_of(model), model.chat_template(), model.chat_template_error()) {}

const engine::ChatTemplate* Conversation::template_of(const datasets::Prompt& prompt) const {
  if (prompt.chat_template.empty()) return template_;
  // Named templates live as long as the program.
  return engine::chat_template_by_name(prompt.chat_template).get();
}

std::string Conversation::render(const datasets::Prompt& prompt,
                                 const std::vector<std::string>& answers) const {
  EVALRUN_CHECK(answers.size() < prompt.turns.size(), "turn {} of {}", answers.size(),
                prompt.turns.size());
  if (!prompt.chat) {
    std::string text;
    for (size_t i = 0; i <= answers.size(); ++i)
      text += prompt.turns[i] + (i < answers.size() ? answers[i] : "");
    return text;
  }
  const engine::ChatTemplate* chat_template = template_of(prompt);
  if (chat_template == nullptr) {
    std::string names;
    for (const std::string& name : engine::chat_template_names())
      names += (names.empty() ? "" : ", ") + name;
    throw base::usage_error(fmt::format("no chat template for this model{}{}",
                                        template_problem_.empty() ? "" : ": ", template_problem_),
                            "name one with --chat-template: " + names);
  }
  std::vector<engine::ChatMessage> messages;
  for (size_t i = 0; i <= answers.size(); ++i) {
    messages.push_back({"user", prompt.turns[i]});
    if (i < answers.size()) messages.push_back({"assistant", answers[i]});
  }
  return chat_template->render(messages, /*add_generation_prompt=*/true);
}

std::vector<int32_t> Conversation::encode(const datasets::Prompt& prompt,
                                          const std::string& text) const {
  const engine::ChatTemplate* chat_template = prompt.chat ? template_of(prompt) : nullptr;
  const bool add_special =
      !prompt.chat || (chat_template != nullptr && chat_template->add_special());
  return tokenizer_.encode(text, {.parse_special = true, .add_special = add_special});
}

std::vector<int32_t> Conversation::encode_answer(const std::string& text) const {
  return tokenizer_.encode(text, {.parse_special = false, .add_special = false});
}

std::string Conversation::decode(std::span<const int32_t> ids) const {
  return tokenizer_.decode(ids, /*skip_special=*/true);
}

std::vector<size_t> Conversation::text_ends(std::span<const int32_t> ids) const {
  std::vector<size_t> ends;
  size_t bytes = 0;
  for (const int32_t id : ids)
    ends.push_back(bytes += tokenizer_.token_bytes(id, /*skip_special=*/true).size());
  return ends;
}

std::optional<methods::StopText> Conversation::stop_text(const datasets::Prompt& prompt) const {
  if (prompt.stop.empty()) return std::nullopt;
  return methods::StopText(tokenizer_, {prompt.stop.strings, prompt.stop.closing_brace});
}

int common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace evalrun::runners
