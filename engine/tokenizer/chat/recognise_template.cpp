#include <algorithm>
#include <functional>
#include <optional>

#include "engine/base/registry.h"
#include "engine/tokenizer/chat/chat_styles.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/normalizer.h"

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

base::Registry<Template> make_registry() {
  base::Registry<Template> all("chat template");
  all.add("chatml", chatml_style("chatml", ""));
  for (const DefaultSystem& d : kDefaultSystems) all.add(d.name, chatml_style(d.name, d.text));
  all.add("qwen3", qwen3_style());
  // BiTA (Lin et al. 2024) measures with a full and a short form of two templates: llama2-full and
  // llama2, vicuna and vicuna-short.
  all.add("llama2", llama2_style("llama2", kLlamaEdges, ""));
  all.add("llama2-full", llama2_style("llama2-full", kLlamaEdges, kLlama2System));
  all.add("llama3", llama3_style("llama3", kLlama3Edges, false));
  all.add("llama3.1", llama3_style("llama3.1", kLlama3Edges, true));
  for (const MistralFormat& f : mistral_formats()) all.add(f.name, mistral_style(f, kLlamaEdges));
  all.add("vicuna", vicuna_style("vicuna", true));
  all.add("vicuna-short", vicuna_style("vicuna-short", false));
  all.add("zephyr", zephyr_style(kLlamaEdges));
  return all;
}

const base::Registry<Template>& registry() {
  static const base::Registry<Template> instance = make_registry();
  return instance;
}

// A template's text in the forms the recognisers look at. Writers vary quotes, white space outside
// of literals, and real newlines against "\n"; none of that changes what is printed.
struct Jinja {
  explicit Jinja(std::string_view source)
      : text(replace_all(replace_all(source, "\"", "'"), "\\n", "\n")) {
    for (char c : text)
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') key.push_back(c);
  }
  bool has(std::string_view part) const { return key.find(part) != std::string::npos; }
  bool has_exactly(std::string_view part) const { return text.find(part) != std::string::npos; }

  std::string text;  // one kind of quotes, newlines real
  std::string key;   // the same without white space
};

// A literal in the place of the system prompt: what the template says when the user does not.
// Returns nullopt when there is none, and the empty string when there is one we do not know.
std::optional<std::string> default_system_name(const Jinja& jinja) {
  constexpr std::string_view kOpen = "<|im_start|>system\n";
  std::vector<std::string> literals;
  for (size_t at = jinja.text.find(kOpen); at != std::string::npos;
       at = jinja.text.find(kOpen, at + 1)) {
    const std::string_view rest = std::string_view(jinja.text).substr(at + kOpen.size());
    if (rest.starts_with('\'') || rest.starts_with("{")) continue;  // written by an expression
    literals.emplace_back(rest.substr(0, rest.find("<|im_end|>")));
  }
  if (literals.empty()) {
    // Or it is put into a variable first.
    if (jinja.has("system_message='") && !jinja.has("system_message=''")) return "";
    return std::nullopt;
  }
  for (const DefaultSystem& d : kDefaultSystems)
    if (std::all_of(literals.begin(), literals.end(),
                    [&](const std::string& literal) { return literal == d.text; }))
      return d.name;
  return "";
}

Template recognise_chatml(const Jinja& jinja) {
  if (!jinja.has("<|im_start|>") || !jinja.has("<|im_end|>")) return nullptr;
  if (jinja.has("<think>"))
    return jinja.has("enable_thinking") && jinja.has("last_query_index") && !jinja.has("trim")
               ? qwen3_style()
               : nullptr;
  // Turns written "role\ncontent"; a template that strips contents or refuses roles is another one.
  const bool turns = jinja.has("message['role']") || jinja.has("message.role") ||
                     jinja.has("m['role']") || jinja.has("m.role");
  if (!turns || jinja.has("trim") || jinja.has("strip()") || jinja.has("raise_exception") ||
      jinja.has("<|im_sep|>") || !jinja.has("add_generation_prompt") ||
      !jinja.has_exactly("<|im_start|>assistant\n"))
    return nullptr;
  const auto name = default_system_name(jinja);
  if (!name) return chatml_style("chatml", "");
  return name->empty() ? nullptr : registry().get(*name);
}

Template recognise_llama3(const Jinja& jinja, const EdgeTokens& edges) {
  if (!jinja.has("<|start_header_id|>") || !jinja.has("<|eot_id|>") || !jinja.has("trim") ||
      !jinja.has("bos_token") || jinja.has("think"))
    return nullptr;
  if (jinja.has_exactly("Cutting Knowledge Date: December 2023\n") &&
      jinja.has_exactly("26 Jul 2024"))
    return llama3_style("llama3.1", edges, true);
  return jinja.has("loop.index0==0") && !jinja.has("system_message")
             ? llama3_style("llama3", edges, false)
             : nullptr;
}

Template recognise_llama2(const Jinja& jinja, const EdgeTokens& edges) {
  const bool same =
      jinja.has("<<SYS>>") && jinja.has("bos_token+'[INST]'+content.strip()+'[/INST]'") &&
      jinja.has("content.strip()+''+eos_token") && jinja.has("system_message=false") &&
      !jinja.has("system_message='");  // a default of the template's own
  return same ? llama2_style("llama2", edges, "") : nullptr;
}

Template recognise_mistral(const Jinja& jinja, const EdgeTokens& edges) {
  if (!jinja.has("[INST]") || jinja.has("<<SYS>>") || jinja.has("[SYSTEM_PROMPT]") ||
      !jinja.has("bos_token"))
    return nullptr;
  MistralFormat found;
  const auto first_of = [&](std::initializer_list<const char*> literals) -> std::string {
    for (const char* literal : literals)
      if (jinja.has_exactly(fmt::format("'{}'", literal))) return literal;
    return "";
  };
  found.open = first_of({" [INST] ", "[INST] "});
  found.close = first_of({" [/INST]", "[/INST]"});
  found.trim_answer = jinja.has("message['content']|trim+eos_token");
  if (jinja.has_exactly("' ' + message['content']")) found.answer_prefix.push_back(' ');
  if (jinja.has_exactly("eos_token + ' '")) found.answer_suffix.push_back(' ');
  if (jinja.has("loop.firstandsystem_message")) found.system = MistralSystem::kFirstTurn;
  if (jinja.has("loop.lastandsystem_message")) found.system = MistralSystem::kLastTurn;
  for (const MistralFormat& f : mistral_formats())
    if (f.open == found.open && f.close == found.close && f.answer_prefix == found.answer_prefix &&
        f.answer_suffix == found.answer_suffix && f.trim_answer == found.trim_answer &&
        f.system == found.system)
      return mistral_style(f, edges);
  return nullptr;
}

Template recognise_zephyr(const Jinja& jinja, const EdgeTokens& edges) {
  const bool same = jinja.has_exactly("'<|user|>\n' + message['content'] + eos_token") &&
                    jinja.has_exactly("'<|system|>\n' + message['content'] + eos_token") &&
                    jinja.has("'<|assistant|>'") && jinja.has("loop.lastandadd_generation_prompt");
  return same ? zephyr_style(edges) : nullptr;
}

Template recognise_vicuna(const Jinja& jinja) {
  const bool same = jinja.has_exactly(
                        "A chat between a curious user and an artificial intelligence "
                        "assistant.") &&
                    jinja.has_exactly("USER: ") && jinja.has_exactly("ASSISTANT:");
  return same ? vicuna_style("vicuna", true) : nullptr;
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

std::shared_ptr<const ChatTemplate> chat_template_from_jinja(std::string_view source,
                                                             const std::string& bos,
                                                             const std::string& eos) {
  const Jinja jinja(source);
  const EdgeTokens edges{bos, eos};
  const Template candidates[] = {recognise_chatml(jinja),        recognise_llama3(jinja, edges),
                                 recognise_llama2(jinja, edges), recognise_mistral(jinja, edges),
                                 recognise_zephyr(jinja, edges), recognise_vicuna(jinja)};
  for (const Template& candidate : candidates)
    if (candidate != nullptr) return candidate;
  throw base::usage_error(
      fmt::format("the model's chat template is none of those known here; it begins '{}'",
                  source.substr(0, 60)),
      fmt::format("name the one to use with --chat-template NAME: {}",
                  fmt::join(chat_template_names(), ", ")));
}

}  // namespace evalrun::engine
