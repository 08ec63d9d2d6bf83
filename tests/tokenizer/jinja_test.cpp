#include "engine/tokenizer/jinja/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/text.h"
#include "tests/tokenizer/jinja_values.h"

namespace evalrun::engine::jinja {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

ordered_json render(const std::string& text, const ordered_json& variables = ordered_json::object(),
                    const Limits& limits = {}) {
  return render_json({{"template", text}, {"variables", variables}}, limits);
}

std::string error_of(const std::string& text, const Limits& limits = {}) {
  const ordered_json result = render(text, ordered_json::object(), limits);
  if (!result.contains("error")) {
    ADD_FAILURE() << text << " gives " << result["text"];
    return "";
  }
  return result["error"].get<std::string>();
}

// Small templates of our own. The texts are jinja2's.
class Cases : public ::testing::TestWithParam<std::string> {};

const ordered_json& cases() {
  static const ordered_json all =
      ordered_json::parse(base::read_file(EVALRUN_TEST_DATA "/jinja_cases.json"));
  return all;
}

TEST_P(Cases, AreRenderedAsJinja2DoesOrRefusedByBoth) {
  for (const ordered_json& c : cases()["groups"][GetParam()]) {
    const auto text = c["template"].get<std::string>();
    const ordered_json result = render(text, cases()["variables"]);
    if (c["text"].is_null())
      EXPECT_FALSE(result.contains("text")) << text << " gives " << result["text"];
    else
      EXPECT_EQ(result, ordered_json({{"text", c["text"]}})) << text;
  }
}

std::vector<std::string> groups() {
  std::vector<std::string> names;
  for (const auto& [name, group] : cases()["groups"].items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Jinja, Cases, ::testing::ValuesIn(groups()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_EQ(render("a\n\n{{ missing.x }}"),
            ordered_json({{"error", "'missing' is undefined"}, {"line", 3}}));
  EXPECT_EQ(render("a\n{% if true %}\n{{ 1 + }}\n{% endif %}"),
            ordered_json({{"error", "expected an expression, found the end of an expression, '}}'"},
                          {"line", 3}}));
  EXPECT_EQ(render("{% macro m() %}\n{{ 'x' | nothing }}{% endmacro %}\n\n{{ m() }}")["line"], 2);
  EXPECT_EQ(render("{{ '\n\n' }}{{ raise_exception('roles must alternate') }}"),
            ordered_json({{"error", "the template refuses the conversation: roles must alternate"},
                          {"line", 3}}));
  EXPECT_EQ(render("{%- set x = 1 -%}\n\n{{ 1 / 0 }}")["line"], 3);
  EXPECT_THAT(error_of("{% for x in y %}"), HasSubstr("endfor"));
  EXPECT_THAT(error_of("{% include 'other' %}"), HasSubstr("another file"));
}

// Templates that would not end, or not fit: each is refused, and soon.
TEST(Jinja, HostileTemplatesAreRefusedInTime) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of("{% for i in range(10 ** 12) %}{% endfor %}"), HasSubstr("100000 items"));
  const std::string loop = "{% for i in range(99999) %}";
  EXPECT_THAT(error_of(loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}"),
              AnyOf(HasSubstr("steps"), HasSubstr("MiB")));
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("itself"));
  EXPECT_THAT(error_of("{% macro a(x) %}{{ b(x) }}{% endmacro %}{% macro b(x) %}{{ a(x) }}"
                       "{% endmacro %}{{ a(1) }}"),
              HasSubstr("itself"));
  EXPECT_THAT(error_of("{% set ns = namespace(s='x') %}{% for i in range(64) %}"
                       "{% set ns.s = ns.s + ns.s %}{% endfor %}"),
              HasSubstr("MiB"));
  for (const char* text :
       {"{{ 'x' * 10 ** 9 }}", "{{ [1] * 10 ** 9 }}", "{{ 'x'.center(10 ** 12) }}",
        "{{ 'x'.zfill(10 ** 12) }}", "{{ 'x\\ny' | indent(10 ** 10) }}",
        "{{ 'x'.ljust(9223372036854775807) }}", "{{ [[1]] | tojson(indent=10 ** 10) }}",
        "{{ ('x' * 10 ** 5).replace('', 'y' * 10 ** 5) }}",
        "{{ range(10 ** 5) | join('x' * 10 ** 5) }}", "{{ [1] | batch(10 ** 12, 0) | list }}",
        "{{ [1] | slice(10 ** 12) | list }}"})
    EXPECT_THAT(error_of(text), HasSubstr("MiB")) << text;
  // A list of ten million letters would take a hundred times their bytes.
  EXPECT_THAT(error_of("{{ ('x' * 10 ** 7) | list | length }}"), HasSubstr("MiB"));
  EXPECT_THAT(error_of("{% for i in range(5000) %}{% for m in messages %}{% endfor %}{% set x = i "
                       "%}{% endfor %}",
                       {1000, 1 << 20, 600}),
              HasSubstr("1000 steps"));
  EXPECT_THAT(error_of("{{ '%1000000000d' % 1 }}"), HasSubstr("width"));
  EXPECT_THAT(error_of("{{ '{:1000000000}'.format(1) }}"), HasSubstr("width"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ 10 ** 10 ** 10 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ 99999999999999999999 }}"), HasSubstr("64 bits"));
  // Trees and values that are too deep to walk.
  EXPECT_THAT(error_of("{{ " + std::string(100000, '(') + "1"), HasSubstr("nested"));
  EXPECT_THAT(error_of("{{ " + std::string(100000, '-') + "1 }}"), HasSubstr("nested"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 100000; ++i) sum += " + 1";
  EXPECT_THAT(error_of(sum + " }}"), HasSubstr("nested"));
  std::string ifs;
  for (int i = 0; i < 10000; ++i) ifs += "{% if 1 %}";
  EXPECT_THAT(error_of(ifs), HasSubstr("nested"));
  EXPECT_THAT(error_of("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
                       "{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("deeper"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% set ns.me = ns %}"), HasSubstr("namespace"));
  // A list that holds itself twice, sixty times over, is small until it is printed or compared.
  EXPECT_THAT(error_of("{% set ns = namespace(l=[1]) %}{% for i in range(58) %}"
                       "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"),
              AnyOf(HasSubstr("steps"), HasSubstr("MiB")));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 60);  // a few on an idle machine
}

TEST(Jinja, OneRenderingDoesNotChangeTheNext) {
  const Template made("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ x }}");
  for (const char* x : {"a", "b"}) {
    Budget budget{Limits{}};
    EXPECT_EQ(made.render({{"x", budget.text(x)}}, kTestDate, budget), std::string("1") + x);
  }
}

}  // namespace
}  // namespace evalrun::engine::jinja
