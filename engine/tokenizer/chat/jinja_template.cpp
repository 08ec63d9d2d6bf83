// A model's own template, or one of a file.
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/tokenizer/chat/chat_styles.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/jinja/jinja.h"

namespace evalrun::engine {
namespace {

// The day for templates that write today's into the prompt. It is the one that Llama's templates
// fall back to. A prompt must not change from one day to the next.
constexpr jinja::Date kDate = {2024, 7, 26};
using Messages = std::vector<ChatMessage>;

constexpr const char* kAsksForDate = "strftime_now";
constexpr size_t kNameDigits = 12;  // of the hash, in a name

std::string hint() {
  return fmt::format(
      "name another template: --chat-template NAME ({}), or a file with --chat-template "
      "FILE.jinja",
      fmt::join(chat_template_names(), ", "));
}

std::string place_of(const std::string& place, int line) {
  return line > 0 ? fmt::format("{}: chat template, line {}", place, line)
                  : fmt::format("{}: chat template", place);
}

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(jinja::Template code, std::string_view source, SpecialTokens tokens,
                std::string place)
      : code_(std::move(code)),
        tokens_(std::move(tokens)),
        place_(std::move(place)),
        sha256_(base::sha256_hex(source)),
        dated_(source.find(kAsksForDate) != std::string_view::npos) {
    EdgeTokens edges;
    for (const auto& [name, text] : tokens_) {
      if (name == "bos_token") edges.bos = text;
      if (name == "eos_token") edges.eos = text;
    }
    name_ = name_of_same_style(
        [this](const Messages& messages, bool prompt) { return probe(messages, prompt); }, edges);
    if (name_.empty()) name_ = "jinja-" + sha256_.substr(0, kNameDigits);
  }

  std::string name() const override { return name_; }
  // transformers encodes a rendered text without adding to it.
  bool add_special() const override { return false; }
  std::string sha256() const override { return sha256_; }
  std::string place() const override { return place_; }
  std::string date() const override {
    return dated_ ? fmt::format("{:04}-{:02}-{:02}", kDate.year, kDate.month, kDate.day) : "";
  }

  std::string render(const Messages& messages, bool add_generation_prompt) const override {
    try {
      return write(messages, add_generation_prompt, jinja::Limits{});
    } catch (const jinja::Fault& fault) {  // only to add the place
      throw base::usage_error(fmt::format("{}: {}", place_of(place_, fault.line()), fault.what()),
                              "change the conversation, or " + hint());
    }
  }

 private:
  std::string write(const Messages& messages, bool add_generation_prompt,
                    const jinja::Limits& limits) const {
    jinja::Budget budget(limits);
    jinja::Values talk;
    for (const ChatMessage& m : messages)
      talk.push_back(jinja::make_dict({{budget.text("role"), budget.text(m.role)},
                                       {budget.text("content"), budget.text(m.content)}},
                                      budget));
    jinja::Variables variables;
    for (const auto& [name, text] : tokens_) variables.emplace_back(name, budget.text(text));
    variables.emplace_back("messages", budget.list(std::move(talk)));
    variables.emplace_back("tools", jinja::Value::none());
    variables.emplace_back("documents", jinja::Value::none());
    variables.emplace_back("add_generation_prompt", jinja::Value::boolean(add_generation_prompt));
    return code_.render(variables, kDate, budget);
  }

  // A refusal is an answer: the template's name is asked for, not a prompt.
  std::optional<std::string> probe(const Messages& messages, bool prompt) const {
    jinja::Limits limits;
    limits.steps /= 20;
    limits.bytes /= 20;
    try {
      return write(messages, prompt, limits);
    } catch (const jinja::Fault&) {
      return std::nullopt;
    }
  }

  jinja::Template code_;
  SpecialTokens tokens_;
  std::string place_, sha256_, name_;
  bool dated_;
};

jinja::Template parsed(std::string_view source, const std::string& place) {
  try {
    return jinja::Template(source);
  } catch (const jinja::Fault& fault) {  // only to add the place
    throw base::data_error(place_of(place, fault.line()), "", fault.what(), hint());
  }
}

}  // namespace

std::shared_ptr<const ChatTemplate> chat_template_from_jinja(std::string_view source,
                                                             const SpecialTokens& tokens,
                                                             const std::string& place) {
  return std::make_shared<JinjaTemplate>(parsed(source, place), source, tokens, place);
}

}  // namespace evalrun::engine
