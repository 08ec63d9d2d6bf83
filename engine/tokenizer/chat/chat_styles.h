// The prompt formats that chat templates produce: one class for each way of writing a conversation.
// Sources: the chat templates in the models' own tokenizer_config.json files; Vicuna: FastChat's
// conversation "vicuna_v1.1".
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/chat/chat_template.h"

namespace evalrun::engine {

// Texts of the begin and end tokens, where a format writes them.
struct EdgeTokens {
  std::string bos, eos;
};

// "<|im_start|>role\ncontent<|im_end|>\n". A non-empty default_system is written when the
// conversation does not begin with a system message.
std::shared_ptr<const ChatTemplate> chatml_style(std::string name, std::string default_system);

// Qwen3: ChatML whose earlier answers lose their <think> part and whose last one always has it.
std::shared_ptr<const ChatTemplate> qwen3_style();

// LLaMA 2: [INST] with <<SYS>> inside the first one; contents are stripped. A non-empty
// default_system is written when the conversation does not begin with a system message.
std::shared_ptr<const ChatTemplate> llama2_style(std::string name, EdgeTokens edges,
                                                 std::string default_system);

// LLaMA 3 headers; contents are stripped. With `dated_system` (3.1 and later) a system turn with
// the knowledge dates always comes first. The date is the template's fixed fallback, 26 Jul 2024,
// also where the template would ask for today's: a prompt must not change from one day to the next.
std::shared_ptr<const ChatTemplate> llama3_style(std::string name, EdgeTokens edges,
                                                 bool dated_system);

enum class MistralSystem { kRefused, kFirstTurn, kLastTurn };
struct MistralFormat {
  std::string name;
  std::string open, close;                   // around a user's content
  std::string answer_prefix, answer_suffix;  // around an answer; the end token precedes the suffix
  bool trim_answer = false;
  MistralSystem system = MistralSystem::kRefused;
};
const std::vector<MistralFormat>& mistral_formats();
std::shared_ptr<const ChatTemplate> mistral_style(MistralFormat format, EdgeTokens edges);

// Zephyr and TinyLlama: "<|role|>\ncontent</s>\n".
std::shared_ptr<const ChatTemplate> zephyr_style(EdgeTokens edges);

// Vicuna v1.1: "SYSTEM USER: ... ASSISTANT: ...</s>"; the tokenizer adds the begin token. Without
// default_system a conversation without a system message has none.
std::shared_ptr<const ChatTemplate> vicuna_style(std::string name, bool default_system);

// What a template writes for a conversation, with or without a generation prompt; nothing when it
// refuses.
using WriteChat = std::function<std::optional<std::string>(const std::vector<ChatMessage>&, bool)>;
// The named template that writes the same with the model's tokens, as far as it can write at all;
// "" when none does. Calls `write` once for each of a dozen conversations.
std::string name_of_same_style(const WriteChat& write, const EdgeTokens& edges);

}  // namespace evalrun::engine
