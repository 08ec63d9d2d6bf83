// Prompts of evaluation sets in other text: what is a word, what is a gram, and that nothing is
// lost where a text is cut.
#include "datasets/overlap.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "tests/datasets/test_files.h"

namespace evalrun::datasets {
namespace {

using base::ExitCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<uint64_t> words_of(std::string_view text) {
  WordHashes reader;
  std::vector<uint64_t> words;
  reader.push(text, words);
  reader.finish(words);
  return words;
}

TEST(Words, CaseAndPunctuationDoNotCount) {
  EXPECT_EQ(words_of("Don't  STOP,\nnow - (please)!"), words_of("dont stop now please"));
  EXPECT_EQ(words_of("a\tb\u00a0c\u2003d"), words_of("a b c d"));
  EXPECT_EQ(words_of("ÄRGER “Größe”"), words_of("ärger größe"));
  EXPECT_EQ(words_of("f(x_1)=2").size(), 1u);
  EXPECT_EQ(words_of("... --- !").size(), 0u);
  EXPECT_NE(words_of("abc"), words_of("ab c"));
  EXPECT_NE(words_of("ab"), words_of("ba"));
  EXPECT_EQ(words_of("保持健康，三个").size(), 6u) << "a character is a word; the comma is none";
  EXPECT_EQ(words_of("用Python写").size(), 3u);
  EXPECT_EQ(words_of("a \xff\xfe b"), words_of("a b")) << "what is no UTF-8 is no word";
}

TEST(Words, ATextMayBeCutAnywhere) {
  const std::string text = "Größe zählt, 保持健康 and “quotes” – don't\u2003you think? ";
  const auto whole = words_of(text);
  for (size_t size = 1; size < text.size(); ++size) {
    WordHashes reader;
    std::vector<uint64_t> words;
    for (size_t at = 0; at < text.size(); at += size)
      reader.push(std::string_view(text).substr(at, size), words);
    reader.finish(words);
    EXPECT_EQ(words, whole) << size;
  }
}

// Words "w<from>" to "w<from+n-1>".
std::string numbered(int from, int n) {
  std::string text;
  for (int i = from; i < from + n; ++i) text += fmt::format("w{} ", i);
  return text;
}

LoadedDataset set_of(const std::string& name,
                     const std::vector<std::vector<std::string>>& prompts) {
  LoadedDataset loaded;
  loaded.task = loaded.info.name = name;
  loaded.verification = "built in";
  for (size_t i = 0; i < prompts.size(); ++i) {
    Prompt prompt;
    prompt.id = fmt::format("{}/{}", name, i);
    prompt.turns = prompts[i];
    loaded.prompts.push_back(prompt);
  }
  return loaded;
}

std::vector<std::string> hits(const PromptGrams& grams, const std::vector<std::string>& texts) {
  OverlapSearch search(grams);
  for (const std::string& text : texts) {
    search.push(text);
    search.end_text();
  }
  std::vector<std::string> ids;
  for (const uint32_t prompt : search.end_document()) ids.push_back(grams.id_of(prompt));
  return ids;
}

TEST(Overlap, ThirteenWordsInARow) {
  PromptGrams grams;
  grams.add(set_of("a", {{numbered(0, 30)}, {"Short one", numbered(100, 13)}}));
  grams.add(set_of("b", {{numbered(10, 30)}}));
  grams.finish();
  EXPECT_EQ(grams.sets().size(), 2u);
  EXPECT_EQ(grams.sets()[0].n_prompts, 2);
  EXPECT_THAT(hits(grams, {"x " + numbered(2, 13) + "y"}), ElementsAre("a/0"));
  EXPECT_THAT(hits(grams, {"x " + numbered(2, 12) + "y"}), IsEmpty());
  EXPECT_THAT(hits(grams, {numbered(2, 6) + "and " + numbered(8, 12)}), IsEmpty());
  EXPECT_THAT(hits(grams, {numbered(12, 13)}), ElementsAre("a/0", "b/0"));
  EXPECT_THAT(hits(grams, {"W100, w101! " + numbered(102, 50)}), ElementsAre("a/1"));
  // A gram does not go on from one string of a line to the next.
  EXPECT_THAT(hits(grams, {numbered(2, 7), numbered(9, 6)}), IsEmpty());
}

TEST(Overlap, ShortTurns) {
  PromptGrams grams;
  grams.add(set_of("a", {{numbered(0, 8)}, {numbered(50, 12)}, {"Tell me a joke."}, {"?"}}));
  grams.finish();
  EXPECT_THAT(hits(grams, {"so " + numbered(0, 8)}), ElementsAre("a/0"));
  EXPECT_THAT(hits(grams, {"so " + numbered(0, 7)}), IsEmpty());
  EXPECT_THAT(hits(grams, {numbered(49, 14)}), ElementsAre("a/1"));
  EXPECT_THAT(hits(grams, {numbered(50, 11)}), IsEmpty());
  EXPECT_THAT(hits(grams, {"x", "tell me a JOKE"}), ElementsAre("a/2"));
  EXPECT_THAT(hits(grams, {"Please tell me a joke."}), IsEmpty()) << "no whole text";
  EXPECT_THAT(hits(grams, {"", "!"}), IsEmpty());
}

TEST(Overlap, TheWordingOfASetIsNoEvidence) {
  std::vector<std::vector<std::string>> prompts;
  for (int i = 0; i < 11; ++i) prompts.push_back({numbered(0, 13) + numbered(100 * (i + 1), 13)});
  PromptGrams grams;
  grams.add(set_of("many", prompts));
  prompts.pop_back();
  grams.add(set_of("few", prompts));
  // Eleven prompts of one problem, in so many languages, count as one.
  LoadedDataset group = set_of("group", prompts);
  group.prompts.push_back(group.prompts[0]);
  for (Prompt& prompt : group.prompts) prompt.group = "one";
  grams.add(group);
  grams.finish();
  const auto found = hits(grams, {numbered(0, 13)});
  EXPECT_EQ(found.size(), 10u + 11u);
  EXPECT_EQ(found.front(), "few/0");
  EXPECT_THAT(hits(grams, {numbered(300, 13)}), ElementsAre("many/2", "few/2", "group/2"));
}

// A short task between fixed sentences, as MBPP's: it is found alone, the sentences are not.
TEST(Overlap, TasksBetweenFixedSentences) {
  std::vector<std::vector<std::string>> prompts;
  const std::string before = "You are an expert, and here is your task: ";
  const std::string after = " Your code should pass these tests: assert f(";
  for (int i = 0; i < 40; ++i)
    prompts.push_back({before + numbered(100 * i, i % 2 == 0 ? 9 : 5) + after + numbered(i, 1)});
  PromptGrams grams;
  grams.add(set_of("a", prompts));
  grams.finish();
  EXPECT_THAT(hits(grams, {"Please: " + numbered(600, 9)}), ElementsAre("a/6"));
  EXPECT_THAT(hits(grams, {numbered(700, 5)}), ElementsAre("a/7")) << "a text on its own";
  EXPECT_THAT(hits(grams, {"Please: " + numbered(700, 5)}), IsEmpty());
  EXPECT_THAT(hits(grams, {before + "write it" + after, numbered(3, 1)}), IsEmpty());
}

// Words of a small vocabulary, so that many grams nearly agree: against comparing all with all.
TEST(Overlap, AgreesWithComparingAllWithAll) {
  base::Rng rng(3);
  const auto random_words = [&](int n, int vocabulary) {
    std::vector<int> words;
    for (int i = 0; i < n; ++i)
      words.push_back(static_cast<int>(rng.next() % static_cast<uint64_t>(vocabulary)));
    return words;
  };
  const auto text_of = [](const std::vector<int>& words) {
    std::string text;
    for (const int word : words) text += fmt::format("v{} ", word);
    return text;
  };
  std::vector<std::vector<int>> prompts, texts;
  std::vector<std::vector<std::string>> turns;
  for (int i = 0; i < 40; ++i) {
    prompts.push_back(random_words(1 + i, 2 + i % 2));
    turns.push_back({text_of(prompts.back())});
  }
  PromptGrams grams;
  grams.add(set_of("p", turns));
  grams.finish();
  int n_hits = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<int> text = random_words(1 + i % 60, 2 + i % 2);
    std::set<std::string> expected;
    for (size_t p = 0; p < prompts.size(); ++p) {
      const std::vector<int>& prompt = prompts[p];
      const auto n = static_cast<long>(std::min<size_t>(prompt.size(), 13));
      bool overlaps = n < 8 && prompt == text;
      for (auto at = prompt.begin(); n >= 8 && prompt.end() - at >= n; ++at)
        overlaps = overlaps || std::search(text.begin(), text.end(), at, at + n) != text.end();
      if (overlaps) expected.insert(fmt::format("p/{}", p));
    }
    const auto found = hits(grams, {text_of(text)});
    EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), expected) << i;
    n_hits += static_cast<int>(expected.size());
  }
  EXPECT_GT(n_hits, 30);
}

TEST(Overlap, LinesOfAFile) {
  const TempFolder dir;
  PromptGrams grams;
  grams.add(set_of("a", {{numbered(0, 20)}, {numbered(40, 20)}}));
  grams.finish();
  const std::string lines = R"({"messages": [{"role": "user", "content": "hello"},)"
                            R"( {"role": "assistant", "content": "So )" +
                            numbered(3, 13) +
                            "\"}]}\n\n{\"text\": \"nothing\"}\n{\"a\": {\"b\": [\"" +
                            numbered(0, 13) + "\"]}}";
  for (const bool zipped : {false, true}) {
    const std::string name = zipped ? "x.jsonl.gz" : "x.jsonl";
    const std::string path = dir.write(name, zipped ? gzip(lines) : lines);
    std::vector<bool> overlaps;
    const OverlapReport report =
        find_overlap(path, grams, [&](std::string_view, bool hit) { overlaps.push_back(hit); });
    EXPECT_EQ(report.sha256, base::sha256_file(path));
    EXPECT_EQ(report.n_documents, 3);
    EXPECT_EQ(report.n_overlapping, 2);
    EXPECT_THAT(report.prompts, ElementsAre(1));
    EXPECT_THAT(overlaps, ElementsAre(true, false, true));
    ASSERT_EQ(report.examples.size(), 2u);
    EXPECT_EQ(report.examples[1].line, 4);
    EXPECT_EQ(report.examples[1].prompt, "a/0");
    EXPECT_EQ(report.n_words, 2 + 1 + 14 + 1 + 13);  // roles are strings, too
  }
}

// A text of several pieces, with grams across their borders.
TEST(Overlap, APlainTextIsOneDocument) {
  const TempFolder dir;
  std::vector<std::vector<std::string>> turns;
  std::string text;
  for (int i = 0; text.size() < 3'500'000; ++i) {
    const std::string gram = numbered(20 * i, 13);
    if (i % 3 == 0) turns.push_back({gram});
    text += gram + "\nfiller, filler. ";
  }
  const auto expected = static_cast<int64_t>(turns.size());
  turns.push_back({"is not in this text at all because nobody ever wrote it there"});
  PromptGrams grams;
  grams.add(set_of("a", turns));
  grams.finish();
  const OverlapReport report = find_overlap(dir.write("book.txt", text), grams);
  EXPECT_EQ(report.n_documents, 1);
  EXPECT_THAT(report.prompts, ElementsAre(expected));
  EXPECT_EQ(find_overlap(dir.write("book.txt.gz", gzip(text)), grams).n_words, report.n_words);
}

TEST(Overlap, BadFilesAreNamed) {
  const TempFolder dir;
  PromptGrams grams;
  grams.add(set_of("a", {{numbered(0, 20)}}));
  grams.finish();
  const auto refused = [&](const std::string& path) {
    return error_of(ExitCode::kData, [&] { find_overlap(path, grams); });
  };
  EXPECT_THAT(refused(dir.file("nothing.txt")), HasSubstr("nothing.txt"));
  EXPECT_THAT(refused(dir.path()), HasSubstr("is a folder"));
  EXPECT_THAT(refused(dir.write("x.jsonl", "{\"a\": \"b\"}\n{\"a\": \"b\"\n")),
              AllOf(HasSubstr("x.jsonl: line 2"), HasSubstr("no JSON object")));
  EXPECT_THAT(refused(dir.write("x.jsonl", "7\n")), HasSubstr("line 1"));
  EXPECT_THAT(refused(dir.write("x.json", "[]")), HasSubstr("scripts/train import"));
  const std::string zipped = gzip(numbered(0, 5000));
  EXPECT_THAT(refused(dir.write("x.txt.gz", zipped.substr(0, zipped.size() - 9))),
              HasSubstr("truncated"));
}

TEST(Overlap, SetsThatAreThere) {
  const TempFolder dir;
  std::vector<std::string> missing;
  const auto specs = [&](const std::string& root) {
    missing.clear();
    return present_datasets(root, missing);
  };
  EXPECT_THAT(specs(""), ::testing::Contains("samples/chat"));
  EXPECT_THAT(specs(""), ::testing::Not(::testing::Contains("samples")));
  EXPECT_THAT(missing, ::testing::IsSupersetOf({"gsm8k", "humaneval_x", "dolly"}));
  dir.write("gsm8k/test.jsonl", R"({"question":"q?","answer":"#### 1"})");
  dir.write("humaneval_x/humaneval_go.jsonl.gz", "");
  dir.write("cip/test.json", "");
  EXPECT_THAT(specs(dir.path()), ::testing::IsSupersetOf({"gsm8k", "humaneval_x[go]", "cip"}));
  EXPECT_THAT(missing, ::testing::Not(::testing::Contains("humaneval_x")));
  for (const auto& list : {specs(dir.path()), missing})
    EXPECT_THAT(list, ::testing::Not(::testing::Contains("gsm_100"))) << "a part of gsm8k";
}

}  // namespace
}  // namespace evalrun::datasets
