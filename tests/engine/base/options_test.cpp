// Options bound to a struct: one line declares, checks, documents and reads them.
#include "engine/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace evalrun::base {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

enum class Match { kFirst, kRecent };
struct Part {
  int depth = 2;
  bool drawn = false;
};
struct Shape {
  int n = 3;
  double x = 0.50;
  bool on = false;
  std::string s = "abc";
  Match match = Match::kRecent;
  int zero = 0;
  int above = 7;
  Part part{.depth = 2, .drawn = true};
};

Options<Part> part_options() {
  return Options<Part>{}
      .add("depth", &Part::depth, {1, 9}, "depth")
      .choice("draft", &Part::drawn, {{"drawn", true}, {"best", false}}, "draft");
}

Options<Shape> options() {
  return Options<Shape>{}
      .add("n", &Shape::n, {}, "count")
      .add("x", &Shape::x, {0, 1}, "number")
      .add("on", &Shape::on, "switch")
      .add("s", &Shape::s, "text")
      .choice("match", &Shape::match, {{"first", Match::kFirst}, {"recent", Match::kRecent}},
              "which")
      .add("zero", &Shape::zero, {0, 0}, "nothing else")
      .add("above", &Shape::above, {.least = 5}, "no end")
      .add(part_options(), &Shape::part);
}

Shape of(const std::map<std::string, std::string>& given) {
  return options().of(OptionValues(options().infos(), given, {"m"}));
}

std::string error(const std::string& key, const std::string& value) {
  try {
    of({{key, value}});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  return "no error";
}

TEST(Options, DefaultsAreTheStructsOwn) {
  const OptionValues defaults(options().infos(), {}, {"m"});
  EXPECT_EQ(defaults.canonical(),
            "above=7,depth=2,draft=drawn,match=recent,n=3,on=false,s=abc,x=0.5,zero=0");
  EXPECT_THROW(defaults.text("none"), InternalError);
  EXPECT_EQ(part_options().infos()[1].default_value, "best") << "without the struct around it";
  const Shape shape = of({});
  EXPECT_EQ(shape.n, 3);
  EXPECT_EQ(shape.x, 0.5);
  EXPECT_EQ(shape.match, Match::kRecent);
  EXPECT_TRUE(shape.part.drawn);
}

TEST(Options, EveryTypeIsReadIntoItsMember) {
  const Shape shape = of({{"n", "-7"},
                          {"x", "1e-3"},
                          {"on", "1"},
                          {"s", "8-15+20"},
                          {"match", "first"},
                          {"above", "1000000"},
                          {"depth", "9"},
                          {"draft", "best"}});
  EXPECT_EQ(shape.n, -7);
  EXPECT_EQ(shape.x, 1e-3);
  EXPECT_TRUE(shape.on);
  EXPECT_EQ(shape.s, "8-15+20");
  EXPECT_EQ(shape.match, Match::kFirst);
  EXPECT_EQ(shape.above, 1000000);
  EXPECT_EQ(shape.part.depth, 9);
  EXPECT_FALSE(shape.part.drawn);
}

TEST(Options, EqualValuesHaveOneSpelling) {
  const OptionValues values(options().infos(), {{"n", "04"}, {"x", "0.50"}, {"on", "0"}}, {"m"});
  EXPECT_EQ(values.text("n"), "4");
  EXPECT_EQ(values.text("x"), "0.5");
  EXPECT_EQ(values.text("on"), "false");
  EXPECT_EQ(values.changed(options().infos()), "n=4");
}

TEST(Options, MessagesNameTheCulpritAndWhatIsAllowed) {
  EXPECT_THAT(error("n", "many"), AllOf(HasSubstr("m: parameter 'n' must be an integer, found "
                                                  "'many'"),
                                        HasSubstr("count (default 3)")));
  EXPECT_THAT(error("n", ""), HasSubstr("must be an integer, found ''"));
  EXPECT_THAT(error("x", "1.5"), HasSubstr("must be in 0..1, found '1.5'"));
  EXPECT_THAT(error("x", "-0.1"), HasSubstr("must be in 0..1"));
  EXPECT_THAT(error("x", "nan"), HasSubstr("must be a number"));
  EXPECT_THAT(error("x", "inf"), HasSubstr("must be a number"));
  EXPECT_THAT(error("on", "yes"), HasSubstr("must be true or false, found 'yes'"));
  EXPECT_THAT(error("s", ""), HasSubstr("must be a text"));
  EXPECT_THAT(error("match", "frist"),
              AllOf(HasSubstr("must be one of first, recent, found 'frist'"),
                    HasSubstr("did you mean 'first'?"), HasSubstr("which (default recent)")));
  EXPECT_THAT(error("zero", "1"), HasSubstr("must be in 0..0"));
  EXPECT_EQ(error("zero", "0"), "no error");
  EXPECT_THAT(error("above", "4"), HasSubstr("must be at least 5"));
  EXPECT_THAT(error("depth", "10"), HasSubstr("must be in 1..9"));
  EXPECT_THAT(error("m", "1"),
              AllOf(HasSubstr("m: unknown parameter 'm'"), HasSubstr("known: n, x, on")));
  const auto none = [] { OptionValues(std::vector<OptionInfo>{}, {{"k", "1"}}, {"a", "option"}); };
  EXPECT_THAT(none, testing::ThrowsMessage<Error>(
                        AllOf(HasSubstr("a: unknown option 'k'"), HasSubstr("a has no options"))));
}

TEST(Options, ANameIsDeclaredOnce) {
  EXPECT_THROW(options().add("depth", &Shape::n, {}, "again"), InternalError);
  Options<Shape> no_choice;
  EXPECT_THROW(no_choice.choice("match", &Shape::match, {{"first", Match::kFirst}}, "which"),
               InternalError)
      << "the default is no choice";
}

struct Noted : OptionInfo {
  int note = 0;
};

TEST(Options, MoreCanBeSaidAboutAnOption) {
  const auto part = Options<Part, Noted>{}
                        .add("depth", &Part::depth, {1, 9}, "depth")
                        .with(&Noted::note, 5)
                        .add("drawn", &Part::drawn, "drawn");
  const auto whole = Options<Shape, Noted>{}.add(part, &Shape::part).add("on", &Shape::on, "on");
  std::vector<int> notes;
  for (const Noted& info : whole.infos()) notes.push_back(info.note);
  EXPECT_THAT(notes, ElementsAre(5, 0, 0));
}

TEST(Options, FunctionsOfTheStructTakeTheValues) {
  const auto product =
      options().bound([](const Shape& shape, int factor) { return shape.n * factor; });
  EXPECT_EQ(product(OptionValues(options().infos(), {{"n", "5"}}, {"m"}), 4), 20);
}

TEST(SplitOptions, KeysAndValues) {
  EXPECT_THAT(
      split_options(" a = 1 ,b=x=y,c=", {"m"}, "form"),
      ElementsAre(testing::Pair("a", "1"), testing::Pair("b", "x=y"), testing::Pair("c", "")));
  const auto message = [](const std::string& text) {
    try {
      split_options(text, {"m", "option"}, "write key=value");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  for (const char* bad : {"", "k", "=3", "a=1,,b=2"})
    EXPECT_THAT(message(bad),
                AllOf(HasSubstr("m: expected key=value, found"), HasSubstr("write key=value")))
        << bad;
  EXPECT_THAT(message("k=1,k=1"),
              AllOf(HasSubstr("m: option 'k' is given twice"), Not(HasSubstr("write"))));
}

}  // namespace
}  // namespace evalrun::base
