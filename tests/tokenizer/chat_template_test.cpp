#include "engine/tokenizer/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace evalrun::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Messages = std::vector<ChatMessage>;

const Messages kTalk = {{"user", " Hi\n"}, {"assistant", " Yes. "}, {"user", "More"}};
const Messages kTalkWithSystem = {
    {"system", "Be brief."}, {"user", " Hi\n"}, {"assistant", " Yes. "}, {"user", "More"}};

std::string render(const char* name, const Messages& messages, bool prompt = true) {
  return chat_template_by_name(name)->render(messages, prompt);
}

template <typename Run>
std::string usage_error_of(Run run) {
  try {
    run();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

TEST(ChatTemplate, ChatMlLeavesContentsAlone) {
  EXPECT_EQ(render("chatml", kTalk),
            "<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\n Yes. <|im_end|>\n"
            "<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render("chatml", {{"user", "x"}}, false), "<|im_start|>user\nx<|im_end|>\n");
}

TEST(ChatTemplate, DefaultSystemPromptsStandInForMissingOnes) {
  const Messages hi = {{"user", "x"}};
  const std::string rest = "<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(
      render("chatml-smollm2", hi),
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face" +
          rest);
  EXPECT_EQ(render("qwen1.5", hi), "<|im_start|>system\nYou are a helpful assistant" + rest);
  EXPECT_EQ(render("qwen2", hi), "<|im_start|>system\nYou are a helpful assistant." + rest);
  EXPECT_EQ(
      render("qwen2.5", hi),
      "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant." +
          rest);
  for (const char* name : {"chatml", "chatml-smollm2", "qwen1.5", "qwen2", "qwen2.5"})
    EXPECT_EQ(render(name, {{"system", "S"}, {"user", "x"}}), "<|im_start|>system\nS" + rest)
        << name;
}

TEST(ChatTemplate, Qwen3DropsEarlierThoughts) {
  const Messages talk = {{"user", "a"},
                         {"assistant", "<think>\nhm\n</think>\n\nb"},
                         {"user", "c"},
                         {"assistant", "<think>\nwell\n</think>\n\nd"}};
  EXPECT_EQ(render("qwen3", talk, false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n"
            "<|im_start|>assistant\n<think>\nwell\n</think>\n\nd<|im_end|>\n");
}

TEST(ChatTemplate, Llama2StripsAndPutsTheSystemPromptInside) {
  EXPECT_EQ(
      render("llama2", kTalkWithSystem),
      "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Yes. </s><s>[INST] More [/INST]");
  EXPECT_EQ(render("llama2", kTalk), "<s>[INST] Hi [/INST] Yes. </s><s>[INST] More [/INST]");
  // The full form has a system text of its own, in the first turn only, unless one is given.
  EXPECT_EQ(render("llama2-full", kTalkWithSystem), render("llama2", kTalkWithSystem));
  EXPECT_THAT(
      render("llama2-full", kTalk),
      AllOf(HasSubstr("<s>[INST] <<SYS>>\nYou are a helpful, respectful and honest assistant."),
            HasSubstr("share false information.\n<</SYS>>\n\n Hi [/INST] Yes. </s><s>[INST] "
                      "More [/INST]")));
}

TEST(ChatTemplate, Llama3) {
  EXPECT_EQ(render("llama3", kTalk),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nYes.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nMore<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(render("llama3.1", {{"system", " S "}, {"user", "x"}}, false),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
            "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|>");
}

TEST(ChatTemplate, MistralVersions) {
  EXPECT_EQ(render("mistral-v0.1", kTalk), "<s>[INST]  Hi\n [/INST] Yes. </s> [INST] More [/INST]");
  EXPECT_EQ(render("mistral-v0.2", kTalk), "<s>[INST]  Hi\n [/INST] Yes. </s>[INST] More [/INST]");
  EXPECT_EQ(render("mistral-v1", kTalkWithSystem),
            "<s> [INST] Be brief.\n\n Hi\n [/INST]  Yes. </s> [INST] More [/INST]");
  EXPECT_EQ(render("mistral-v2", kTalkWithSystem),
            "<s>[INST]  Hi\n[/INST]  Yes. </s>[INST] Be brief.\n\nMore[/INST]");
  EXPECT_EQ(render("mistral-v3", kTalkWithSystem),
            "<s>[INST]  Hi\n[/INST] Yes.</s>[INST] Be brief.\n\nMore[/INST]");
}

TEST(ChatTemplate, VicunaAndZephyr) {
  EXPECT_EQ(
      render("vicuna", {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}),
      "A chat between a curious user and an artificial intelligence assistant. The assistant "
      "gives helpful, detailed, and polite answers to the user's questions. USER: a ASSISTANT: "
      "b</s>USER: c ASSISTANT:");
  EXPECT_EQ(render("vicuna-short", {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}),
            "USER: a ASSISTANT: b</s>USER: c ASSISTANT:");
  EXPECT_EQ(render("zephyr", {{"system", "S"}, {"user", "x "}}),
            "<|system|>\nS</s>\n<|user|>\nx </s>\n<|assistant|>\n");
  for (const std::string& name : chat_template_names())
    EXPECT_EQ(chat_template_by_name(name)->add_special(), name.starts_with("vicuna")) << name;
}

TEST(ChatTemplate, RefusesWhatItCannotExpress) {
  for (const std::string& name : chat_template_names())
    EXPECT_THAT(usage_error_of([&] { render(name.c_str(), {}); }),
                HasSubstr("there is no message"));
  for (const char* name : {"llama2", "mistral-v0.2", "mistral-v1", "mistral-v3", "vicuna"}) {
    EXPECT_THAT(usage_error_of([&] {
                  render(name, {{"user", "a"}, {"user", "b"}});
                }),
                AllOf(HasSubstr(name), HasSubstr("message 2"), HasSubstr("alternate")));
    EXPECT_THAT(usage_error_of([&] {
                  render(name, {{"assistant", "a"}});
                }),
                HasSubstr("alternate"));
  }
  EXPECT_THAT(usage_error_of([] { render("mistral-v0.2", kTalkWithSystem); }),
              HasSubstr("no system message"));
  EXPECT_THAT(usage_error_of([] { render("zephyr", {{"tool", "a"}}); }), HasSubstr("role 'tool'"));
}

TEST(ChatTemplate, UnknownNamesSuggestKnownOnes) {
  EXPECT_THAT(usage_error_of([] { chat_template_by_name("lama3"); }),
              AllOf(HasSubstr("lama3"), HasSubstr("llama3"), HasSubstr("zephyr")));
}

// ---- templates in Jinja ----

std::shared_ptr<const ChatTemplate> own(const std::string& source) {
  return chat_template_from_jinja(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "x.gguf");
}
std::string recognised(const std::string& source) { return own(source)->name(); }

const std::string kLoop = "{% for message in messages %}";
const std::string kTurn =
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}";
const std::string kEnd =
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

std::string chatml_with(const std::string& system) {
  return kLoop +
         "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" +
         system + "<|im_end|>\\n' }}{% endif %}" + kTurn + kEnd;
}

TEST(OwnTemplate, IsNamedByWhatItWrites) {
  EXPECT_EQ(recognised(kLoop + kTurn + kEnd), "chatml");
  EXPECT_EQ(recognised("{%- for message in messages -%}\n{{ '<|im_start|>' ~ message.role }}\n"
                       "{{ message.content }}<|im_end|>\n{% endfor %}"
                       "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}"),
            "chatml");
  EXPECT_EQ(
      recognised(chatml_with("You are a helpful AI assistant named SmolLM, trained by Hugging "
                             "Face")),
      "chatml-smollm2");
  EXPECT_EQ(recognised(chatml_with("You are a helpful assistant")), "qwen1.5");
  EXPECT_EQ(recognised(chatml_with("You are a helpful assistant.")), "qwen2");
}

TEST(OwnTemplate, WhatWritesLikeNoNamedOneIsNamedByItsText) {
  const auto pirate = own(chatml_with("You are a pirate."));
  EXPECT_EQ(pirate->name(), "jinja-" + pirate->sha256().substr(0, 12));
  EXPECT_EQ(pirate->sha256().size(), 64u);
  EXPECT_EQ(pirate->place(), "x.gguf");
  EXPECT_EQ(pirate->date(), "");
  EXPECT_FALSE(pirate->add_special());
  EXPECT_EQ(pirate->render({{"user", "x"}}, true),
            "<|im_start|>system\nYou are a pirate.<|im_end|>\n<|im_start|>user\nx<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_NE(pirate->name(), recognised(chatml_with("You are a sailor.")));
  // A begin token, a stripped content, or a single blank make another template.
  EXPECT_THAT(recognised("{{ bos_token }}" + kLoop + kTurn + kEnd), HasSubstr("jinja-"));
  std::string source = kLoop + kTurn + kEnd;
  source.replace(source.find("message['content']"), 18, "message['content'] | trim");
  EXPECT_THAT(recognised(source), HasSubstr("jinja-"));
  EXPECT_THAT(recognised(kLoop + kTurn + kEnd + " "), HasSubstr("jinja-"));
  for (const char* odd : {"", "{{ messages[0].content }}", "<|im_start|><|im_end|>"})
    EXPECT_THAT(recognised(odd), HasSubstr("jinja-")) << odd;
}

TEST(OwnTemplate, MistralByItsSpaces) {
  const auto source = [](const char* open, const char* close, const char* answer) {
    return std::string(
               "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ "
               "'") +
           open + "' + message['content'] + '" + close +
           "' }}{% elif message['role'] == 'assistant' %}{{ " + answer +
           "}}{% endif %}{% endfor %}";
  };
  EXPECT_EQ(recognised(source("[INST] ", " [/INST]", "message['content'] + eos_token")),
            "mistral-v0.2");
  EXPECT_EQ(recognised(source("[INST] ", " [/INST]", "message['content'] + eos_token + ' ' ")),
            "mistral-v0.1");
  EXPECT_THAT(recognised(source("[INST]", "[/INST]", "message['content'] + eos_token")),
              HasSubstr("jinja-"));
}

TEST(OwnTemplate, BeginAndEndTokensAreTheModels) {
  const auto chat = chat_template_from_jinja(
      "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + "
      "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == "
      "0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
      "{% endif %}",
      {{"bos_token", "<BOS>"}}, "x.gguf");
  EXPECT_EQ(chat->name(), "llama3");
  EXPECT_EQ(chat->render({{"user", "x"}}, false),
            "<BOS><|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|>");
}

TEST(OwnTemplate, TellsTheDateThatItWasGiven) {
  const auto dated = own("{{ strftime_now('%d %b %Y') }}{{ messages | length }}");
  EXPECT_EQ(dated->render({{"user", "x"}}, true), "26 Jul 20241");
  EXPECT_EQ(dated->date(), "2024-07-26");
}

TEST(OwnTemplate, ToolsAndDocumentsAreNone) {
  EXPECT_EQ(own("{{ tools }}{{ documents }}{{ pad_token is defined }}")->render({}, true),
            "NoneNoneFalse");
}

TEST(OwnTemplate, ErrorsNameFileLineAndRemedy) {
  const auto strict = own("\n{{ raise_exception('only ' ~ messages | length ~ ' roles') }}");
  EXPECT_THAT(usage_error_of([&] {
                strict->render({{"user", "x"}}, true);
              }),
              AllOf(HasSubstr("x.gguf: chat template, line 2: the template refuses the "
                              "conversation: only 1 roles"),
                    HasSubstr("--chat-template NAME"), HasSubstr("llama3.1")));
  const auto endless = own("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  EXPECT_THAT(usage_error_of([&] {
                endless->render({{"user", "x"}}, true);
              }),
              AllOf(HasSubstr("x.gguf: chat template, line 1"), HasSubstr("itself")));
  try {
    own("a\n{% for %}");
    ADD_FAILURE() << "no error was thrown";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("x.gguf: chat template, line 2"),
                                HasSubstr("--chat-template NAME"), HasSubstr("vicuna")));
  }
}

}  // namespace
}  // namespace evalrun::engine
