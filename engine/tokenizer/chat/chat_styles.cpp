#include "engine/tokenizer/chat/chat_styles.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine {
namespace {

using Messages = std::vector<ChatMessage>;

class Style : public ChatTemplate {
 public:
  explicit Style(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  bool add_special() const override { return false; }
  std::string render(const Messages& messages, bool add_generation_prompt) const override {
    if (messages.empty()) refuse("there is no message");
    return write(messages, add_generation_prompt);
  }

 protected:
  virtual std::string write(const Messages& messages, bool add_generation_prompt) const = 0;

  [[noreturn]] void refuse(const std::string& why) const {
    throw base::usage_error(fmt::format("chat template '{}': {}", name_, why),
                            "change the conversation, or name another template with "
                            "--chat-template NAME");
  }
  // The messages from `first` on must be user, assistant, user, ...
  void require_alternation(const Messages& messages, size_t first) const {
    for (size_t i = first; i < messages.size(); ++i) {
      const char* expected = (i - first) % 2 == 0 ? "user" : "assistant";
      if (messages[i].role != expected)
        refuse(fmt::format("message {} has role '{}', but roles must alternate user/assistant{}",
                           i + 1, messages[i].role, first > 0 ? " after the system message" : ""));
    }
  }

 private:
  std::string name_;
};

bool starts_with_system(const Messages& messages) { return messages[0].role == "system"; }

std::string strip(std::string_view text) { return std::string(python::strip(text)); }

std::string strip_newlines(std::string_view text, bool left, bool right) {
  while (left && text.starts_with('\n')) text.remove_prefix(1);
  while (right && text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text);
}

std::string chatml_turn(const std::string& role, const std::string& content) {
  return fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
}

class ChatMl final : public Style {
 public:
  ChatMl(std::string name, std::string default_system)
      : Style(std::move(name)), default_system_(std::move(default_system)) {}

 protected:
  std::string write(const Messages& messages, bool add_generation_prompt) const override {
    std::string out;
    if (!default_system_.empty() && !starts_with_system(messages))
      out += chatml_turn("system", default_system_);
    for (const ChatMessage& m : messages) out += chatml_turn(m.role, m.content);
    if (add_generation_prompt) out += "<|im_start|>assistant\n";
    return out;
  }

 private:
  std::string default_system_;
};

class Qwen3 final : public Style {
 public:
  Qwen3() : Style("qwen3") {}

 protected:
  std::string write(const Messages& messages, bool add_generation_prompt) const override {
    size_t last_query = messages.size() - 1;
    for (size_t i = messages.size(); i-- > 0;)
      if (messages[i].role == "user") {
        last_query = i;
        break;
      }
    std::string out;
    for (size_t i = 0; i < messages.size(); ++i) {
      const ChatMessage& m = messages[i];
      if (m.role == "user" || m.role == "system")
        out += chatml_turn(m.role, m.content);
      else if (m.role == "assistant")
        out += chatml_turn(m.role, answer(m.content, i > last_query, i + 1 == messages.size()));
      else
        refuse(
            fmt::format("message {} has role '{}'; known: system, user, assistant", i + 1, m.role));
    }
    if (add_generation_prompt) out += "<|im_start|>assistant\n";
    return out;
  }

 private:
  static std::string answer(const std::string& content, bool after_last_query, bool last) {
    constexpr std::string_view kOpen = "<think>", kClose = "</think>";
    std::string reasoning, text = content;
    const size_t first_close = content.find(kClose);
    if (first_close != std::string::npos) {
      const std::string head = strip_newlines(content.substr(0, first_close), false, true);
      const size_t open = head.rfind(kOpen);
      reasoning = strip_newlines(
          open == std::string::npos ? head : head.substr(open + kOpen.size()), true, false);
      text = strip_newlines(content.substr(content.rfind(kClose) + kClose.size()), true, false);
    }
    if (!after_last_query || (!last && reasoning.empty())) return text;
    return fmt::format("<think>\n{}\n</think>\n\n{}", strip_newlines(reasoning, true, true),
                       strip_newlines(text, true, false));
  }
};

class Llama2 final : public Style {
 public:
  Llama2(std::string name, EdgeTokens edges, std::string default_system)
      : Style(std::move(name)),
        edges_(std::move(edges)),
        default_system_(std::move(default_system)) {}

 protected:
  std::string write(const Messages& messages, bool) const override {
    const size_t first = starts_with_system(messages) ? 1 : 0;
    require_alternation(messages, first);
    std::string out;
    for (size_t i = first; i < messages.size(); ++i) {
      const ChatMessage& m = messages[i];
      if (m.role == "assistant") {
        out += fmt::format(" {} {}", strip(m.content), edges_.eos);
        continue;
      }
      std::string content = m.content;
      const std::string& system = first == 1 ? messages[0].content : default_system_;
      if (i == first && (first == 1 || !system.empty()))
        content = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n{}", system, m.content);
      out += fmt::format("{}[INST] {} [/INST]", edges_.bos, strip(content));
    }
    return out;
  }

 private:
  EdgeTokens edges_;
  std::string default_system_;
};

class Llama3 final : public Style {
 public:
  Llama3(std::string name, EdgeTokens edges, bool dated_system)
      : Style(std::move(name)), edges_(std::move(edges)), dated_system_(dated_system) {}

 protected:
  std::string write(const Messages& messages, bool add_generation_prompt) const override {
    std::string out = edges_.bos;
    size_t first = 0;
    if (dated_system_) {
      std::string system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
      if (starts_with_system(messages)) system += strip(messages[first++].content);
      out += header("system") + system + "<|eot_id|>";
    }
    for (size_t i = first; i < messages.size(); ++i) {
      if (dated_system_ && (messages[i].role == "tool" || messages[i].role == "ipython"))
        refuse(fmt::format("message {} has role '{}'; tool calls are not supported", i + 1,
                           messages[i].role));
      out += header(messages[i].role) + strip(messages[i].content) + "<|eot_id|>";
    }
    if (add_generation_prompt) out += header("assistant");
    return out;
  }

 private:
  static std::string header(const std::string& role) {
    return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", role);
  }
  EdgeTokens edges_;
  bool dated_system_;
};

class Mistral final : public Style {
 public:
  Mistral(MistralFormat format, EdgeTokens edges)
      : Style(format.name), format_(std::move(format)), edges_(std::move(edges)) {}

 protected:
  std::string write(const Messages& messages, bool) const override {
    const size_t first = starts_with_system(messages) ? 1 : 0;
    if (first == 1 && format_.system == MistralSystem::kRefused)
      refuse("it has no system message; put the instruction into the first user message");
    require_alternation(messages, first);
    const size_t with_system =
        format_.system == MistralSystem::kFirstTurn ? first : messages.size() - 1;
    std::string out = edges_.bos;
    for (size_t i = first; i < messages.size(); ++i) {
      const ChatMessage& m = messages[i];
      if (m.role == "assistant") {
        out += format_.answer_prefix + (format_.trim_answer ? strip(m.content) : m.content) +
               edges_.eos + format_.answer_suffix;
        continue;
      }
      out += format_.open;
      if (first == 1 && i == with_system) out += messages[0].content + "\n\n";
      out += m.content + format_.close;
    }
    return out;
  }

 private:
  MistralFormat format_;
  EdgeTokens edges_;
};

class Zephyr final : public Style {
 public:
  explicit Zephyr(EdgeTokens edges) : Style("zephyr"), edges_(std::move(edges)) {}

 protected:
  std::string write(const Messages& messages, bool add_generation_prompt) const override {
    std::string out;
    for (size_t i = 0; i < messages.size(); ++i) {
      const ChatMessage& m = messages[i];
      if (m.role != "system" && m.role != "user" && m.role != "assistant")
        refuse(
            fmt::format("message {} has role '{}'; known: system, user, assistant", i + 1, m.role));
      out += fmt::format("<|{}|>\n{}{}\n", m.role, m.content, edges_.eos);
    }
    if (add_generation_prompt) out += "<|assistant|>\n";
    return out;
  }

 private:
  EdgeTokens edges_;
};

class Vicuna final : public Style {
 public:
  Vicuna(std::string name, bool default_system)
      : Style(std::move(name)), default_system_(default_system) {}
  bool add_special() const override { return true; }

 protected:
  std::string write(const Messages& messages, bool add_generation_prompt) const override {
    const size_t first = starts_with_system(messages) ? 1 : 0;
    require_alternation(messages, first);
    std::string out;
    if (first == 1)
      out = messages[0].content + " ";
    else if (default_system_)
      out = kSystem;
    for (size_t i = first; i < messages.size(); ++i)
      out += messages[i].role == "user" ? fmt::format("USER: {} ", messages[i].content)
                                        : fmt::format("ASSISTANT: {}</s>", messages[i].content);
    if (add_generation_prompt) out += "ASSISTANT:";
    return out;
  }

 private:
  static constexpr const char* kSystem =
      "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
      "helpful, detailed, and polite answers to the user's questions. ";
  bool default_system_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> chatml_style(std::string name, std::string default_system) {
  return std::make_shared<ChatMl>(std::move(name), std::move(default_system));
}
std::shared_ptr<const ChatTemplate> qwen3_style() { return std::make_shared<Qwen3>(); }
std::shared_ptr<const ChatTemplate> llama2_style(std::string name, EdgeTokens edges,
                                                 std::string default_system) {
  return std::make_shared<Llama2>(std::move(name), std::move(edges), std::move(default_system));
}
std::shared_ptr<const ChatTemplate> llama3_style(std::string name, EdgeTokens edges,
                                                 bool dated_system) {
  return std::make_shared<Llama3>(std::move(name), std::move(edges), dated_system);
}
std::shared_ptr<const ChatTemplate> mistral_style(MistralFormat format, EdgeTokens edges) {
  return std::make_shared<Mistral>(std::move(format), std::move(edges));
}
std::shared_ptr<const ChatTemplate> zephyr_style(EdgeTokens edges) {
  return std::make_shared<Zephyr>(std::move(edges));
}
std::shared_ptr<const ChatTemplate> vicuna_style(std::string name, bool default_system) {
  return std::make_shared<Vicuna>(std::move(name), default_system);
}

const std::vector<MistralFormat>& mistral_formats() {
  static const std::vector<MistralFormat> formats = {
      // 7B-Instruct v0.1 and v0.2 as first published, then their later templates, then v0.3.
      {"mistral-v0.1", "[INST] ", " [/INST]", "", " ", false, MistralSystem::kRefused},
      {"mistral-v0.2", "[INST] ", " [/INST]", "", "", false, MistralSystem::kRefused},
      {"mistral-v1", " [INST] ", " [/INST]", " ", "", false, MistralSystem::kFirstTurn},
      {"mistral-v2", "[INST] ", "[/INST]", " ", "", false, MistralSystem::kLastTurn},
      {"mistral-v3", "[INST] ", "[/INST]", " ", "", true, MistralSystem::kLastTurn},
  };
  return formats;
}

}  // namespace evalrun::engine
