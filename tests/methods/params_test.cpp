// The text form of methods: name:key=value, lists, messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "methods/registration.h"

namespace evalrun::tests::params_test {
namespace {

using methods::parse_method;
using methods::split_method_list;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  return "no error";
}
std::string parse_error(const std::string& text) {
  return message_of([&] { parse_method(text); });
}

TEST(ParseMethod, FillsInDefaultsAndSpellsCanonically) {
  EXPECT_EQ(parse_method("ar").canonical(), "ar");
  EXPECT_EQ(parse_method("pld").canonical(),
            "pld:adaptive=false,candidates=1,k=10,match=first,min_ngram=1,ngram=3");
  EXPECT_EQ(parse_method(" pld: ngram = 04 ,k=2").canonical(),
            "pld:adaptive=false,candidates=1,k=2,match=first,min_ngram=1,ngram=4");
  EXPECT_EQ(parse_method("sps:draft=layers:4").canonical(),
            "sps:adapter=auto,adaptive=false,any_target=false,confidence=0,draft=layers:4,"
            "draft_dtype=q4,draft_kv=same,draft_temperature=0,dtype=int8,entropy=0,k=4,k_max=20,"
            "level_k=3,"
            "levels=none,paths=2,"
            "schedule=constant,verify=auto,vocab=same");
  EXPECT_EQ(parse_method("pld:k=10,ngram=3").label(), "pld");
  EXPECT_EQ(parse_method("pld:ngram=4,k=02").label(), "pld:k=2,ngram=4");
  const auto spec = parse_method("pld:match=recent");
  EXPECT_EQ(spec.params.text("match"), "recent");
  EXPECT_EQ(spec.params.text("k"), "10");
  EXPECT_EQ(parse_method(spec.canonical()).canonical(), spec.canonical());
}

TEST(ParseMethod, EveryRegistryEntryIsDescribedAndParses) {
  for (const auto& [name, info] : methods::method_registry().entries()) {
    EXPECT_EQ(name, info.name);
    EXPECT_FALSE(info.summary.empty()) << name;
    EXPECT_FALSE(info.source.empty()) << name;
    EXPECT_FALSE(info.needs.empty()) << name;
    EXPECT_TRUE(info.build) << name;
    for (const auto& p : info.params) EXPECT_FALSE(p.description.empty()) << name << ' ' << p.name;
    EXPECT_EQ(parse_method(name).info, &info);
  }
}

TEST(ParseMethod, MessagesNameTheCulpritAndTheRemedy) {
  EXPECT_THAT(parse_error("pdl"), AllOf(HasSubstr("unknown method 'pdl'"), HasSubstr("pld")));
  EXPECT_THAT(parse_error(""), HasSubstr("unknown method ''"));
  EXPECT_THAT(parse_error("pld:gram=3"),
              AllOf(HasSubstr("pld: unknown parameter 'gram'"), HasSubstr("ngram")));
  EXPECT_THAT(parse_error("ar:k=3"), HasSubstr("ar has no parameters"));
  EXPECT_THAT(parse_error("pld:k"),
              AllOf(HasSubstr("expected key=value, found 'k'"), HasSubstr("k=10,match=first")));
  EXPECT_THAT(parse_error("pld:"), HasSubstr("expected key=value"));
  EXPECT_THAT(parse_error("pld:=3"), HasSubstr("expected key=value"));
  EXPECT_THAT(parse_error("pld:k=3,k=4"), HasSubstr("'k' is given twice"));
  EXPECT_THAT(
      parse_error("pld:k=many"),
      AllOf(HasSubstr("parameter 'k' must be an integer, found 'many'"), HasSubstr("default 10")));
  EXPECT_THAT(parse_error("pld:k=3.5"), HasSubstr("must be an integer"));
  EXPECT_THAT(parse_error("pld:k="), HasSubstr("must be an integer"));
  EXPECT_THAT(parse_error("pld:k=0"), HasSubstr("must be in 1..1023, found '0'"));
  EXPECT_THAT(parse_error("pld:k=99999999999"), HasSubstr("must be an integer"));
  EXPECT_THAT(parse_error("pld:match=last"), HasSubstr("one of first, recent, frequent, found"));
  EXPECT_THAT(parse_error("pld:min_ngram=4"), HasSubstr("min_ngram=4 is larger than ngram=3"));
  EXPECT_THAT(
      parse_error("sps:draft=model.gguf"),
      AllOf(HasSubstr("file, trained or layers:N, found 'model.gguf'"), HasSubstr("--draft PATH")));
  for (const char* draft : {"layers:", "layers:0", "layers:-1", "layers:2x", "layers"})
    EXPECT_THAT(parse_error(std::string("sps:draft=") + draft),
                HasSubstr("file, trained or layers:N"));
  EXPECT_THAT(parse_error("sps:draft=self,draft_dtype=bf16"),
              AllOf(HasSubstr("draft_dtype"), HasSubstr("q4, int8")));
  EXPECT_THAT(parse_error("sps:draft_dtype=int8"),
              AllOf(HasSubstr("parameter 'draft_dtype' is of draft=self, but draft is file"),
                    HasSubstr("--draft-dtype")));
  EXPECT_THAT(parse_error("sps:draft=self,draft_kv=q4"),
              AllOf(HasSubstr("draft_kv"), HasSubstr("same, int8, fp8, int4")));
}

// It is no method, but whoever measures may put one in its place.
TEST(ParseMethod, AChoiceIsNotKnownHere) {
  EXPECT_THAT(parse_error("auto"),
              AllOf(HasSubstr("evalrun tune method"), HasSubstr("name the method")));
  EXPECT_THAT(parse_error("auto:k=2"), HasSubstr("evalrun tune method"));
  EXPECT_THAT(parse_error("hybrid:drafts=auto+pld"), HasSubstr("evalrun tune method"));
}

TEST(ParseMethod, ParametersSayWhetherASecondModelDrafts) {
  for (const char* takes : {"sps", "hybrid:drafts=pld+sps"})
    EXPECT_TRUE(parse_method(takes).takes_draft_model()) << takes;
  for (const char* takes_none : {"pld", "sps:draft=self", "sps:draft=layers:1", "hybrid",
                                 "hybrid:drafts=pld+sps(draft=self)"})
    EXPECT_FALSE(parse_method(takes_none).takes_draft_model()) << takes_none;
}

TEST(SplitMethodList, KeepsParametersWithTheirMethod) {
  EXPECT_THAT(split_method_list("ar"), ElementsAre("ar"));
  EXPECT_THAT(split_method_list("ar,pld:k=4,sps:draft=layers:4"),
              ElementsAre("ar", "pld:k=4", "sps:draft=layers:4"));
  EXPECT_THAT(split_method_list("pld:k=4,ngram=2, ar ,sps:k=2,draft=layers:4,pld"),
              ElementsAre("pld:k=4,ngram=2", "ar", "sps:k=2,draft=layers:4", "pld"));
  EXPECT_THAT(split_method_list("pld,k=4,ngram=2"), ElementsAre("pld:k=4,ngram=2"));
  for (const char* bad : {"", "ar,", ",ar", "ar,,pld"})
    EXPECT_THAT(message_of([&] { split_method_list(bad); }), HasSubstr("empty entry")) << bad;
  EXPECT_THAT(message_of([] { split_method_list("k=4,pld"); }),
              HasSubstr("begins with the parameter 'k=4'"));
}

TEST(SplitMethodList, BracesAreEveryCombinationInOrder) {
  EXPECT_THAT(split_method_list("pld:k={2,4,6}"), ElementsAre("pld:k=2", "pld:k=4", "pld:k=6"));
  EXPECT_THAT(split_method_list("ar,pld:ngram={2,3},k={2..20..9},sps"),
              ElementsAre("ar", "pld:ngram=2,k=2", "pld:ngram=2,k=11", "pld:ngram=2,k=20",
                          "pld:ngram=3,k=2", "pld:ngram=3,k=11", "pld:ngram=3,k=20", "sps"));
  EXPECT_THAT(
      split_method_list("sps:draft=layers:{2..4},k=1"),
      ElementsAre("sps:draft=layers:2,k=1", "sps:draft=layers:3,k=1", "sps:draft=layers:4,k=1"));
  EXPECT_THAT(split_method_list("pld:match={ first , recent }"),
              ElementsAre("pld:match=first", "pld:match=recent"));
  EXPECT_THAT(split_method_list("{pld,sps}:k={7}"), ElementsAre("pld:k=7", "sps:k=7"));
  EXPECT_THAT(split_method_list("pld:k={2..7..3}"), ElementsAre("pld:k=2", "pld:k=5"))
      << "the last value need not be met";
  EXPECT_THAT(split_method_list("pld:k={-1..1}"), ElementsAre("pld:k=-1", "pld:k=0", "pld:k=1"));
  EXPECT_THAT(split_method_list("pld:k={0.5,1e-3}"), ElementsAre("pld:k=0.5", "pld:k=1e-3"));
  EXPECT_EQ(split_method_list("pld:k={1..10},ngram={1..10},min_ngram={1..10}").size(), 1000u);
}

TEST(SplitMethodList, BracesThatMeanNothingAreNamed) {
  const auto error = [](const std::string& text) {
    const std::string message = message_of([&] { split_method_list(text); });
    EXPECT_THAT(message, HasSubstr(text));
    return message;
  };
  EXPECT_THAT(error("pld:k={2,4"), HasSubstr("opening brace without a closing"));
  EXPECT_THAT(error("pld:k=2,4}"), HasSubstr("closing brace without an opening"));
  EXPECT_THAT(error("pld:k={2,{4,5}}"), HasSubstr("a brace inside braces"));
  EXPECT_THAT(error("pld:k={}"), HasSubstr("'{}' has an empty entry"));
  EXPECT_THAT(error("pld:k={2,,4}"), HasSubstr("empty entry"));
  EXPECT_THAT(error("pld:k={2,}"), HasSubstr("empty entry"));
  for (const char* bad :
       {"pld:k={a..b}", "pld:k={..}", "pld:k={2..}", "pld:k={1.5..2}", "pld:k={1..99999999999}"})
    EXPECT_THAT(error(bad), HasSubstr("no range of whole numbers"));
  for (const char* bad : {"pld:k={4..2}", "pld:k={2..4..0}", "pld:k={2..4..-1}"})
    EXPECT_THAT(error(bad), HasSubstr("is empty"));
  EXPECT_THAT(error("pld:k={1..2..3..4}"), HasSubstr("first..last..step"));
  for (const char* bad :
       {"pld:k={1..1001}", "pld:k={-2147483648..2147483647}",
        "pld:k={1..11},ngram={1..10},min_ngram={1..10}", "pld:k={1..600},pld:ngram=2,k={1..600}"})
    EXPECT_THAT(error(bad), HasSubstr("more than 1000 methods"));
}

}  // namespace
}  // namespace evalrun::tests::params_test
