#include "engine/base/error.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/jinja/jinja.h"
#include "tests/fuzz/targets.h"

namespace evalrun::fuzz {

void chat_template(std::string_view bytes) {
  namespace jinja = engine::jinja;
  // Small ones: a template that does not end should cost a fuzzer little.
  jinja::Limits limits;
  limits.steps = 20'000;
  limits.bytes = int64_t{1} << 20;
  std::string texts[2];
  for (std::string& text : texts) {
    jinja::Budget budget(limits);
    try {
      const jinja::Template made(bytes);
      const auto turn = [&](const char* role, const char* content) {
        return jinja::make_dict({{budget.text("role"), budget.text(role)},
                                 {budget.text("content"), budget.text(content)}},
                                budget);
      };
      const jinja::Value talk =
          budget.list({turn("system", " Be brief.\n"), turn("user", "Gr\xc3\xbc\xc3\x9f"),
                       turn("assistant", "<think>\na\n</think>\n\nb"), turn("user", "")});
      text = made.render({{"messages", talk},
                          {"tools", jinja::Value::none()},
                          {"add_generation_prompt", jinja::Value::boolean(true)},
                          {"bos_token", budget.text("<s>")},
                          {"n", jinja::Value::integer(7)},
                          {"f", jinja::Value::number(2.5)}},
                         {2024, 7, 26}, budget);
      EVALRUN_CHECK(text.size() <= static_cast<size_t>(limits.bytes));
    } catch (const jinja::Fault& fault) {
      text = fault.what();
      EVALRUN_CHECK(!text.empty() && fault.line() >= 0);
    }
  }
  EVALRUN_CHECK(texts[0] == texts[1], "one template, two texts");
}

}  // namespace evalrun::fuzz
