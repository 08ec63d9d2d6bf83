// A model's chat template in Jinja, through the commands: what it writes is what is encoded, what
// it refuses ends with a message, and what a run stores of it.
#include <filesystem>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

// Not one of the named templates: roles in brackets, and earlier answers shortened to a dash.
constexpr const char* kBrackets =
    "{{ bos_token }}{%- for m in messages %}\n"
    "{{- '[' + m.role + '] ' + (m.content if m.role == 'user' or loop.last else '-') + eos_token "
    "}}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}\n";

class ChatTemplateOption : public CommandTest {
 protected:
  void SetUp() override {
    folder_.write("in.jsonl",
                  json({{"messages", {{{"role", "user"}, {"content", "the cat"}}}}}).dump());
    folder_.write("brackets.jinja", kBrackets);
  }
  // A copy of the tiny model that carries `text`.
  std::string model_with(const std::string& text) {
    std::filesystem::copy(tiny_model(), folder_.file("model"),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    json config = json::parse(folder_.read("model/tokenizer_config.json"));
    config["chat_template"] = text;
    folder_.write("model/tokenizer_config.json", config.dump());
    return folder_.file("model");
  }
  ProgramResult generate(const std::string& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"generate", "-m", model, "--in", "in.jsonl", "-n", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  json ids_of(const std::string& text) {
    folder_.write("text.jsonl", json({{"text", text}}).dump());
    return parse_lines(run({"tokenize", "-m", tiny_model(), "--in", "text.jsonl"}).out)[0]["ids"];
  }
};

TEST_F(ChatTemplateOption, TheModelsOwnAndAFileWriteThePrompt) {
  // bos and eos are the model's, and special tokens when encoded.
  const json expected = ids_of("<|im_start|>[user] the cat<|im_end|>[assistant]");
  EXPECT_EQ(expected[0], 1);
  const ProgramResult own = generate(model_with(kBrackets));
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_EQ(parse_lines(own.out)[0]["prompt_tokens"], expected);
  const ProgramResult file = generate(tiny_model(), {"--chat-template", "brackets.jinja"});
  ASSERT_EQ(file.exit_code, 0) << file.err;
  EXPECT_EQ(file.out, own.out);
  // A name goes before the model's own.
  const ProgramResult named = generate(model_with(kBrackets), {"--chat-template", "chatml"});
  EXPECT_EQ(parse_lines(named.out)[0]["prompt_tokens"],
            ids_of("<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"));
}

TEST_F(ChatTemplateOption, WhatCannotBeRenderedIsNamed) {
  expect_refused(generate(tiny_model(), {"--chat-template", "./none.jinja"}), 2,
                 "--chat-template ./none.jinja: there is no such file");
  expect_refused(generate(tiny_model(), {"--chat-template", "chatmll"}), 2, "chatml");
  folder_.write("broken.jinja", "a\n{% if x %}");
  expect_refused(generate(tiny_model(), {"--chat-template", "broken.jinja"}), 7,
                 "broken.jinja: chat template, line 2");
  const std::string place = "model/tokenizer_config.json: chat template, line 2: ";
  const std::pair<const char*, const char*> hostile[] = {
      {"\n{{ raise_exception('only tools here') }}", "the conversation: only tools here"},
      {"\n{% for i in range(10 ** 12) %}{% endfor %}", "more than 100000 items"},
      {"\n{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
       "more than 256 MiB"},
      {"\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "call itself"},
      {"\n{{ 'x' * 10 ** 9 }}", "MiB"},
      {"\n{{ messages[0].nothing.more }}", "has no attribute 'nothing'"}};
  for (const auto& [text, why] : hostile) {
    const ProgramResult result = generate(model_with(text));
    expect_refused(result, 7, place);
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_THAT(result.err, HasSubstr("--chat-template NAME"));
    EXPECT_EQ(generate(model_with(text), {"--chat-template", "chatml"}).exit_code, 0);
  }
  // Broken text of the model's own: prompts without a chat still run.
  const std::string model = model_with("{% endif %}");
  EXPECT_THAT(generate(model).err, HasSubstr("chat template, line 1: unknown statement 'endif'"));
  folder_.write("in.jsonl", "{\"prompt\": \"x\"}");
  EXPECT_EQ(generate(model).exit_code, 0);
}

TEST_F(ChatTemplateOption, ARunStoresWhatWroteItsPrompts) {
  folder_.write("prompts.jsonl",
                "{\"id\": \"a\", \"turns\": [\"the cat sat\", \"and then\", \"at last\"]}\n");
  folder_.write("suite.json",
                R"({"name": "tiny", "methods": ["ar", "pld"], "tasks": ["jsonl:prompts.jsonl"],
                    "max_new": 8, "repeats": 1, "ignore_eos": true})");
  // Earlier answers are rewritten, so that a turn does not continue the one before.
  const ProgramResult measured = run({"run", "suite.json", "-m", tiny_model(), "--db", "r.db",
                                      "--chat-template", "brackets.jinja"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const auto stored = [&](const std::string& name) {
    return query_value(folder_.file("r.db"),
                       "SELECT value FROM environment WHERE name = '" + name + "'");
  };
  const std::string hash = base::sha256_hex(kBrackets);
  EXPECT_EQ(stored("chat_template"), "jinja-" + hash.substr(0, 12));
  EXPECT_EQ(stored("chat_template_sha256"), hash);
  EXPECT_EQ(stored("chat_template_file"), "brackets.jinja");
  EXPECT_EQ(query_value(folder_.file("r.db"),
                        "SELECT json_extract(settings, '$.chat_template') FROM arm LIMIT 1"),
            "jinja-" + hash.substr(0, 12));

  // `check` measures with the same file, and refuses another text.
  ASSERT_EQ(run({"baseline", "save", "main", "--db", "r.db"}).exit_code, 0);
  const std::vector<std::string> check = {
      "check", "--db", "r.db", "--max-regression", "80%", "--max-extra-runs", "0"};
  const ProgramResult same = run(check);
  EXPECT_NE(same.exit_code, 3) << same.err << same.out;
  EXPECT_EQ(query_value(folder_.file("r.db"),
                        "SELECT COUNT(DISTINCT value) FROM environment WHERE name = "
                        "'chat_template_sha256'"),
            "1");
  folder_.write("brackets.jinja", std::string(kBrackets) + "!");
  const ProgramResult changed = run(check);
  EXPECT_EQ(changed.exit_code, 3) << changed.err << changed.out;
  EXPECT_THAT(changed.err, HasSubstr("--chat-template is 'jinja-"));
}

}  // namespace
}  // namespace evalrun::tests
