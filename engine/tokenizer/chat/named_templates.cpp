#include <algorithm>
#include <optional>

#include "engine/base/registry.h"
#include "engine/tokenizer/chat/chat_styles.h"
#include "engine/tokenizer/chat/chat_template.h"

namespace evalrun::engine {
namespace {

using Template = std::shared_ptr<const ChatTemplate>;

struct DefaultSystem {
  const char* name;
  const char* text;
};
constexpr DefaultSystem kDefaultSystems[] = {
    {"chatml-smollm2", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"qwen1.5", "You are a helpful assistant"},
    {"qwen2", "You are a helpful assistant."},
    {"qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
};

// The default system text of Meta's Llama 2 chat code, its two blanks after "while being safe."
// included.
constexpr const char* kLlama2System =
    "You are a helpful, respectful and honest assistant. Always answer as helpfully as possible, "
    "while being safe.  Your answers should not include any harmful, unethical, racist, sexist, "
    "toxic, dangerous, or illegal content. Please ensure that your responses are socially unbiased "
    "and positive in nature.\n\nIf a question does not make any sense, or is not factually "
    "coherent, explain why instead of answering something not correct. If you don't know the "
    "answer "
    "to a question, please don't share false information.";

const EdgeTokens kLlamaEdges = {"<s>", "</s>"};
const EdgeTokens kLlama3Edges = {"<|begin_of_text|>", "<|eot_id|>"};

base::Registry<Template> make_registry(const EdgeTokens& llama, const EdgeTokens& llama3) {
  base::Registry<Template> all("chat template");
  all.add("chatml", chatml_style("chatml", ""));
  for (const DefaultSystem& d : kDefaultSystems) all.add(d.name, chatml_style(d.name, d.text));
  all.add("qwen3", qwen3_style());
  // BiTA (Lin et al. 2024) measures with a full and a short form of two templates: llama2-full and
  // llama2, vicuna and vicuna-short.
  all.add("llama2", llama2_style("llama2", llama, ""));
  all.add("llama2-full", llama2_style("llama2-full", llama, kLlama2System));
  all.add("llama3", llama3_style("llama3", llama3, false));
  all.add("llama3.1", llama3_style("llama3.1", llama3, true));
  for (const MistralFormat& f : mistral_formats()) all.add(f.name, mistral_style(f, llama));
  all.add("vicuna", vicuna_style("vicuna", true));
  all.add("vicuna-short", vicuna_style("vicuna-short", false));
  all.add("zephyr", zephyr_style(llama));
  return all;
}

const base::Registry<Template>& registry() {
  static const base::Registry<Template> instance = make_registry(kLlamaEdges, kLlama3Edges);
  return instance;
}

// Conversations that tell the named templates from each other and from what they are not: with and
// without a system message, white space at every edge, thoughts, an answer at the end.
std::vector<std::vector<ChatMessage>> probes() {
  const ChatMessage system{"system", " S\n"}, first{"user", " Hi\n"}, more{"user", "More "};
  const ChatMessage answer{"assistant", " Yes. "};
  const ChatMessage thought{"assistant", "<think>\nhm\n</think>\n\nb"};
  return {{first},
          {first, answer, more},
          {system, first, answer, more},
          {first, thought, more, answer, first},
          {first, answer},
          {{"system", ""}, first}};
}

// Nothing when the style cannot express the conversation.
std::optional<std::string> text_of(const ChatTemplate& style, const std::vector<ChatMessage>& talk,
                                   bool prompt) {
  try {
    return style.render(talk, prompt);
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : registry().entries()) names.push_back(name);
  return names;
}

std::shared_ptr<const ChatTemplate> chat_template_by_name(std::string_view name) {
  return registry().get(name);
}

std::string name_of_same_style(const WriteChat& write, const EdgeTokens& edges) {
  struct Probe {
    std::vector<ChatMessage> talk;
    bool prompt;
    std::optional<std::string> text;
  };
  std::vector<Probe> written;
  for (const auto& talk : probes())
    for (const bool prompt : {true, false}) {
      written.push_back({talk, prompt, write(talk, prompt)});
      // Every style can write this one, and what takes too long should take it once.
      if (!written.front().text) return {};
    }
  const base::Registry<Template> styles = make_registry(edges, edges);
  for (const auto& entry : styles.entries()) {
    const ChatTemplate& style = *entry.second;
    if (style.add_special()) continue;  // a text that lacks its begin token is another one
    const bool same = std::all_of(written.begin(), written.end(), [&](const Probe& probe) {
      const auto expected = text_of(style, probe.talk, probe.prompt);
      return !expected || expected == probe.text;
    });
    if (same) return entry.first;
  }
  return {};
}

}  // namespace evalrun::engine
