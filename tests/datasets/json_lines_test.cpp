// Foreign bytes: what is tolerated in a prompt file, and what is refused with file, line and field.
#include "datasets/json_lines.h"

#include <gmock/gmock.h>

#include "engine/base/rng.h"
#include "tests/datasets/test_files.h"

namespace evalrun::datasets {
namespace {

using base::ExitCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTwoLines =
    R"({"id":"a","prompt":"one"})"
    "\n"
    R"({"id":2,"turns":["two","three"],"category":"c","language":"de","group":"g","reference":"r"})"
    "\n";

std::vector<std::string> ids(const LoadedDataset& set) {
  std::vector<std::string> list;
  for (const Prompt& prompt : set.prompts) list.push_back(prompt.id);
  return list;
}

class Jsonl : public ::testing::Test {
 protected:
  LoadedDataset load(std::string_view bytes, const std::string& name = "p.jsonl") {
    return load_dataset("jsonl:" + dir_.write(name, bytes), "");
  }
  std::string refused(std::string_view bytes) {
    const std::string text = error_of(ExitCode::kData, [&] { load(bytes); });
    EXPECT_THAT(text, HasSubstr(dir_.file("p.jsonl")));
    return text;
  }
  TempFolder dir_;
};

void expect_two_lines(const LoadedDataset& set) {
  ASSERT_EQ(set.prompts.size(), 2u);
  EXPECT_EQ(set.prompts[0].id, "a");
  EXPECT_THAT(set.prompts[0].turns, ElementsAre("one"));
  EXPECT_TRUE(set.prompts[0].chat);
  EXPECT_FALSE(set.prompts[0].reference.has_value());
  EXPECT_EQ(set.prompts[1].id, "2");
  EXPECT_THAT(set.prompts[1].turns, ElementsAre("two", "three"));
  EXPECT_EQ(set.prompts[1].category, "c");
  EXPECT_EQ(set.prompts[1].group, "g");
  EXPECT_EQ(set.prompts[0].group, "");
  EXPECT_EQ(set.prompts[1].language, "de");
  EXPECT_EQ(set.prompts[1].reference, "r");
}

TEST_F(Jsonl, ReadsEveryField) {
  const LoadedDataset set = load(kTwoLines);
  expect_two_lines(set);
  EXPECT_EQ(set.verification, "unverified");
  EXPECT_EQ(set.origin, dir_.file("p.jsonl"));
  EXPECT_EQ(set.info.name, "jsonl:" + dir_.file("p.jsonl"));
  EXPECT_EQ(set.info.summary, "own prompts");
}

TEST_F(Jsonl, MessagesAndRawCompletion) {
  const LoadedDataset set = load(
      R"({"id":"m","messages":[{"role":"user","content":"x"},{"role":"user","content":"y"}]})"
      "\n"
      R"({"id":"raw","prompt":"def f(","chat":false,"stop":["\ndef"],"meta":{"any":[1,2]},"reference":null})");
  EXPECT_THAT(set.prompts.at(0).turns, ElementsAre("x", "y"));
  EXPECT_FALSE(set.prompts.at(1).chat);
  EXPECT_THAT(set.prompts.at(1).stop.strings, ElementsAre("\ndef"));
  EXPECT_FALSE(set.prompts.at(1).reference.has_value());
}

TEST_F(Jsonl, WithoutAnIdThePlaceIsTheId) {
  const LoadedDataset set =
      load("{\"prompt\":\"x\"}\n\n{\"prompt\":\"y\"}\n{\"id\":3,\"prompt\":\"z\"}\n");
  EXPECT_THAT(ids(set), ElementsAre("line 1", "line 3", "3"));
  EXPECT_THAT(ids(load("[{\"prompt\":\"x\"}, {\"prompt\":\"y\"}]")),
              ElementsAre("record 1", "record 2"));
}

TEST_F(Jsonl, ToleratesMarkCarriageReturnsAndBlankLines) {
  std::string text = "\xEF\xBB\xBF\r\n" + std::string(kTwoLines) + "\n  \t\r\n";
  for (size_t at = 0; (at = text.find("}\n", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "}\r\n");
  expect_two_lines(load(text));
}

TEST(JsonLines, AListenerHearsOfEachBrokenLine) {
  std::vector<std::string> errors, seen;
  for_each_json_record(
      "{\"a\": \"1\"}\n{\"a\": \n[]\n{\"a\": 2}\n{\"a\": 1e999}\n{\"a\": \"6\"}", "f",
      [&](const JsonLine& at, base::ObjectReader& reader) {
        seen.push_back(fmt::format("{}:{}", at.line, reader.required<std::string>("a")));
      },
      [&](const base::Error& error) { errors.push_back(error.message()); });
  EXPECT_THAT(seen, ::testing::ElementsAre("1:1", "6:6"));
  ASSERT_EQ(errors.size(), 4u);
  for (size_t i = 0; i < errors.size(); ++i)
    EXPECT_THAT(errors[i], ::testing::HasSubstr(fmt::format("f: line {}", i + 2)));
}

TEST_F(Jsonl, GzipByContentAndInSeveralMembers) {
  expect_two_lines(load(gzip(kTwoLines), "p.jsonl"));
  const std::string text = kTwoLines;
  expect_two_lines(load(gzip(text.substr(0, 10)) + gzip(text.substr(10)), "q.jsonl.gz"));
}

TEST_F(Jsonl, OneArrayInsteadOfLines) {
  const std::string
      one = R"({"id":"a","prompt":"one"})",
      two = R"({"id":2,"turns":["two","three"],"category":"c","language":"de","group":"g",)"
            R"("reference":"r"})";
  expect_two_lines(load("\n [" + one + ",\n" + two + "]\n"));
  EXPECT_THAT(refused("[" + one + ",1]"), AllOf(HasSubstr("record 2"), HasSubstr("an object")));
  EXPECT_THAT(refused("[" + one + "," + one + "]"), HasSubstr("record 2"));
  EXPECT_THAT(refused("[\n" + one), HasSubstr("line 2"));
  EXPECT_THAT(refused("[]"), HasSubstr("is empty"));
  EXPECT_THAT(refused("[" + one + ",\n\"\xff\"]"), HasSubstr("line 2, column 2"));
}

TEST_F(Jsonl, HugeLine) {
  const std::string big(8 << 20, 'x');
  EXPECT_EQ(load(R"({"id":"big","prompt":")" + big + "\"}").prompts.at(0).turns[0].size(),
            big.size());
}

TEST_F(Jsonl, BrokenLineNamesLineAndColumn) {
  EXPECT_THAT(refused("{\"id\":\"a\",\"prompt\":\"x\"}\n\n{\"id\":\"b\",\"prompt\":}\n"),
              AllOf(HasSubstr("line 3, column 20"), HasSubstr("not valid JSON")));
  EXPECT_THAT(refused(R"({"id":"a","prompt":"x)"), HasSubstr("line 1"));
  EXPECT_THAT(refused("1\n"), AllOf(HasSubstr("line 1"), HasSubstr("must be an object")));
  EXPECT_THAT(refused("{\"id\":\"a\",\"prompt\":\"x\"} {}\n"), HasSubstr("line 1, column 25"));
}

TEST_F(Jsonl, WrongTypeNamesField) {
  EXPECT_THAT(refused(R"({"id":"a","prompt":3})"),
              AllOf(HasSubstr("line 1"), HasSubstr("'prompt'"), HasSubstr("number")));
  EXPECT_THAT(refused(R"({"id":"a","turns":"x"})"), HasSubstr("'turns'"));
  EXPECT_THAT(refused(R"({"id":"a","turns":["x",1]})"), HasSubstr("'turns'"));
  EXPECT_THAT(refused(R"({"id":1.5,"prompt":"x"})"), HasSubstr("'id'"));
  EXPECT_THAT(refused(R"({"id":"a","prompt":"x","chat":1})"), HasSubstr("'chat'"));
  EXPECT_THAT(refused(R"({"id":"a","prompt":"x","reference":42})"), HasSubstr("'reference'"));
  EXPECT_THAT(refused(R"({"id":"a","messages":[{"role":"assistant","content":"x"}]})"),
              AllOf(HasSubstr("messages[0].role"), HasSubstr("user")));
  EXPECT_THAT(refused(R"({"id":"a","messages":[{"role":"user"}]})"),
              HasSubstr("messages[0].content"));
  EXPECT_THAT(refused(R"({"id":"a","messages":["x"]})"), HasSubstr("messages[0]"));
  EXPECT_THAT(refused(R"({"id":"a","prompt":"x","stop":""})"), HasSubstr("'stop'"));
  EXPECT_THAT(refused(R"({"id":"a","prompt":"x","stop":[""]})"), HasSubstr("empty text"));
}

TEST_F(Jsonl, MissingUnknownOrTwofoldField) {
  EXPECT_THAT(refused(R"({"id":"a"})"), AllOf(HasSubstr("'prompt'"), HasSubstr("missing")));
  EXPECT_THAT(refused(R"({"id":"a","prompt":"x","turns":["y"]})"), HasSubstr("more than one way"));
  EXPECT_THAT(refused(R"({"id":"a","prompt":"x","refrence":"y"})"),
              AllOf(HasSubstr("'refrence'"), HasSubstr("did you mean 'reference'")));
  EXPECT_THAT(refused(R"({"id":"a","turns":["x","y"],"chat":false})"), HasSubstr("one turn"));
}

TEST_F(Jsonl, EmptyTextAndDuplicateId) {
  EXPECT_THAT(refused(R"({"id":"a","prompt":" \n"})"), HasSubstr("empty turn"));
  EXPECT_THAT(refused(R"({"id":"a","turns":[]})"), HasSubstr("no turn"));
  EXPECT_THAT(refused(R"({"id":"","prompt":"x"})"), HasSubstr("'id'"));
  EXPECT_THAT(refused("{\"id\":7,\"prompt\":\"x\"}\n{\"id\":\"7\",\"prompt\":\"y\"}\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("'7' was used before")));
}

TEST_F(Jsonl, EmptyFile) {
  for (const char* text : {"", "\n\n", "\xEF\xBB\xBF", "  \r\n"})
    EXPECT_THAT(refused(text), HasSubstr("is empty"));
  EXPECT_THAT(refused(gzip("")), HasSubstr("is empty"));
}

TEST_F(Jsonl, BytesThatAreNotUtf8) {
  EXPECT_THAT(refused("{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"caf\xe9\"}\n"),
              AllOf(HasSubstr("line 2, column 24"), HasSubstr("0xe9"), HasSubstr("UTF-8")));
  // A surrogate and an overlong form are not UTF-8 either.
  EXPECT_THAT(refused("{\"id\":\"a\",\"prompt\":\"\xed\xa0\x80\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(refused("{\"id\":\"a\",\"prompt\":\"\xc0\xaf\"}"), HasSubstr("UTF-8"));
}

TEST_F(Jsonl, DamagedGzip) {
  std::string noise;
  base::Rng rng(1);
  for (int i = 0; i < 3000; ++i) noise += static_cast<char>('a' + rng.below(26));
  const std::string whole = gzip(R"({"id":"a","prompt":")" + noise + "\"}\n");
  EXPECT_THAT(refused(std::string_view(whole).substr(0, whole.size() / 2)), HasSubstr("truncated"));
  EXPECT_THAT(refused(std::string_view(whole).substr(0, whole.size() - 4)), HasSubstr("truncated"));
  EXPECT_THAT(refused(std::string_view(whole).substr(0, 2)), HasSubstr("truncated"));
  std::string flipped = whole;
  flipped[flipped.size() - 7] ^= 1;  // in the checksum
  EXPECT_THAT(refused(flipped), HasSubstr("damaged"));
  EXPECT_THAT(refused(whole + "tail"), HasSubstr("damaged"));
}

// Whatever the bytes: prompts or an error, never anything else (run under ASan too).
TEST_F(Jsonl, RandomDamageNeverCrashes) {
  const std::string plain = kTwoLines, packed = gzip(kTwoLines);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    base::Rng rng(seed);
    std::string bytes = seed % 2 ? plain : packed;
    for (uint64_t n = 1 + rng.below(4); n > 0; --n)
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    if (rng.below(3) == 0) bytes.resize(rng.below(bytes.size()));
    try {
      load(bytes);
    } catch (const base::Error& e) {
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(ExitCode::kData)) << "seed " << seed;
    }
  }
}

TEST_F(Jsonl, DeepNestingIsAnErrorNotACrash) {
  EXPECT_THAT(refused(std::string(100000, '[')), HasSubstr("not valid JSON"));
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_THAT(refused(deep), HasSubstr("must be an object"));
}

TEST_F(Jsonl, FileThatIsNotThere) {
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("jsonl:" + dir_.file("no"), ""); }),
              HasSubstr(dir_.file("no")));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("jsonl:" + dir_.path(), ""); }),
              HasSubstr("is a folder"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { load_dataset("jsonl:", ""); }),
              HasSubstr("jsonl:FILE"));
}

}  // namespace
}  // namespace evalrun::datasets
