// A conversation of a prompt list, turn by turn: what `evalrun capture` learns from.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "runners/cli/jsonl.h"
#include "runners/train/capture.h"

namespace evalrun::cli {

// "messages" of an object: perhaps a system's message, then user and assistant by turns. Every
// user's message is a turn that is answered.
//
// Answers of a data set are the assistant's messages, and field "answer" where the last message is
// the user's. The model's own answers take the place of what the assistant says there: a model that
// decodes meets its own answers and no others, and so does a drafter.
class Dialogue {
 public:
  // With `given`, answers are the data set's. Throws data_error naming line and field, usage_error
  // when the model has no chat template.
  Dialogue(const JsonlReader& reader, const nlohmann::json& object,
           std::shared_ptr<const engine::Model> model, bool given);

  size_t n_turns() const { return users_.size(); }
  // Turn answers.size(), given the token ids of the answers before. A given answer is the text, and
  // what the chat template ends a turn with, up to the first of the model's stop tokens. Throws
  // data_error for templates that write other things before an answer than they leave open for one
  // (Qwen3's empty thoughts).
  runners::CaptureTurn turn(std::span<const std::vector<int32_t>> answers) const;

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;
  void read_messages(const nlohmann::json& messages);
  void take_answers(const JsonlReader& reader, const nlohmann::json& object);
  std::string render(const std::vector<engine::ChatMessage>& chat, bool open) const;
  // Of the assistant's `answer` behind a chat that is rendered as `prompt`.
  std::vector<int32_t> encode_answer(std::vector<engine::ChatMessage> chat,
                                     const std::string& prompt, const std::string& answer) const;

  std::string place_;  // "FILE: line 3"
  std::shared_ptr<const engine::Model> model_;
  std::vector<engine::ChatMessage> system_;  // one, or none
  std::vector<std::string> users_, assistants_;
  bool given_ = false;
};

}  // namespace evalrun::cli
