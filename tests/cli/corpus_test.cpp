// evalrun corpus, and a run that drafts from one.
#include <unistd.h>

#include "engine/base/error.h"
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Corpus : public CommandTest {
 protected:
  Corpus() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the cat sat on the mat and the dog ran to the cat .\n";
    folder_.write("text.txt", text);
  }
  ProgramResult build(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"corpus", "build", "-m", tiny_model()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  json built(std::vector<std::string> more) {
    more.push_back("--json");
    const ProgramResult result = build(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out) : json();
  }
  size_t n_tokens(const std::string& text) {
    folder_.write("t.jsonl", json({{"text", text}}).dump() + "\n");
    const ProgramResult result = run({"tokenize", "-m", tiny_model(), "--in", "t.jsonl"});
    return parse_lines(result.out).at(0)["ids"].size();
  }
};

TEST_F(Corpus, SuffixesByNameInfoAndARunThatDraftsFromThem) {
  const ProgramResult result = build({"text.txt", "--kind", "suffixes", "--name", "cats"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("tokens"), HasSubstr("documents"), HasSubstr("built in"),
                                HasSubstr("rest:datastore=cats")));
  EXPECT_THAT(result.err, HasSubstr("reading text.txt"));
  const ProgramResult table = run({"corpus", "info", "cats"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("intact"));
  const json info = json::parse(run({"corpus", "info", "cats", "--json"}).out);
  ASSERT_EQ(info.size(), 1u);
  EXPECT_EQ(info[0]["kind"], "suffixes");
  EXPECT_EQ(info[0]["documents"], 1);
  EXPECT_EQ(info[0]["content_hash"].get<std::string>().size(), 64u);

  folder_.write("prompts.jsonl",
                "{\"id\": \"a\", \"prompt\": \"the cat sat on\", \"chat\": false}\n");
  const ProgramResult ran =
      run({"run", "-m", tiny_model(), "--methods", "rest:datastore=cats,min_span=1", "--tasks",
           "jsonl:prompts.jsonl", "-n", "24", "--json", "-q"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("rest:datastore=cats"));
  // The same corpus serves no other vocabulary.
  const ProgramResult other =
      run({"run", "-m", other_vocabulary(), "--methods", "rest:datastore=cats", "--tasks",
           "jsonl:prompts.jsonl", "-n", "24"});
  expect_refused(other, 2, "evalrun corpus build FILES... --kind suffixes --model");
  const ProgramResult by_path = run({"run", "-m", other_vocabulary(), "--methods",
                                     "rest:datastore=" + info[0]["path"].get<std::string>(),
                                     "--tasks", "jsonl:prompts.jsonl", "-n", "24"});
  expect_refused(by_path, 2, "another vocabulary");
}

TEST_F(Corpus, NgramsByLength) {
  const json out = built({"text.txt", "--kind", "ngrams", "-o", "text.ngrams"});
  EXPECT_EQ(out["ngrams"]["max_key"], 4);
  ASSERT_EQ(out["ngrams"]["lengths"].size(), 4u);
  for (const json& length : out["ngrams"]["lengths"]) {
    EXPECT_GT(length["keys"], 0);
    EXPECT_GE(length["grams"], length["keys"]);
  }
  EXPECT_THAT(run({"corpus", "info", "text.ngrams"}).out,
              AllOf(HasSubstr("key length"), HasSubstr("seen 6 times or more")));
  const json small = built({"text.txt", "--kind", "ngrams", "-o", "small.ngrams", "--max-key", "2",
                            "--gram", "3", "--top", "1", "--min-count", "41"});
  ASSERT_EQ(small["ngrams"]["lengths"].size(), 2u);
  EXPECT_EQ(small["ngrams"]["lengths"][0]["keys"], small["ngrams"]["lengths"][0]["grams"]);
}

TEST_F(Corpus, TextIsOneDocumentAndEachLineOfJsonLinesIsOne) {
  folder_.write("in.jsonl",
                "{\"question\": \"the cat\", \"answer\": \"the dog\", \"n\": 3}\n\n"
                "{\"question\": [\"the mat\", {\"deep\": \"sat\"}], \"answer\": \"ran\"}\n");
  const auto kind = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--kind", "suffixes", "-o", "out.suffixes"});
    return more;
  };
  EXPECT_EQ(built(kind({"text.txt"}))["documents"], 1);
  const json all = built(kind({"in.jsonl"}));
  EXPECT_EQ(all["documents"], 2);
  EXPECT_EQ(all["tokens"], n_tokens("the cat\nthe dog") + n_tokens("the mat\nsat\nran"));
  const json one = built(kind({"in.jsonl", "--fields", "answer"}));
  EXPECT_EQ(one["tokens"], n_tokens("the dog") + n_tokens("ran"));
  const json both = built(kind({"in.jsonl", "text.txt", "--fields", "answer,question"}));
  EXPECT_EQ(both["documents"], 3);
  EXPECT_EQ(both["files"], 2);
  // Gzipped, and through a pipe.
  ASSERT_EQ(run_command_in(folder_, {"gzip", "-k", "in.jsonl"}).exit_code, 0);
  EXPECT_EQ(built(kind({"in.jsonl.gz"}))["content_hash"], all["content_hash"]);
  const auto piped = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"corpus", "build", "-m", tiny_model(), "--json", "-"});
    const ProgramResult result = run_with_input(kind(more), folder_.read("in.jsonl"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  };
  EXPECT_EQ(piped({"--fields", "answer"})["content_hash"], one["content_hash"]);
  EXPECT_EQ(piped({})["documents"], 1) << "without fields it is a text";
}

TEST_F(Corpus, BlanksAreCollapsedUnlessRaw) {
  folder_.write("noisy.txt", "\n\n  the \t cat\r\n\r\n\f\r\n\n\tsat  \n on\n\n");
  folder_.write("clean.txt", "the cat\n\nsat\non");
  const auto hash = [&](const std::string& file, bool raw) {
    std::vector<std::string> more = {file, "--kind", "suffixes", "-o", "out.suffixes"};
    if (raw) more.push_back("--raw");
    return built(more)["content_hash"];
  };
  EXPECT_EQ(hash("noisy.txt", false), hash("clean.txt", false));
  EXPECT_EQ(hash("clean.txt", true), hash("clean.txt", false));
  EXPECT_NE(hash("noisy.txt", true), hash("clean.txt", true));
}

TEST_F(Corpus, SpecialTokensInATextAreText) {
  folder_.write("special.txt", "<|im_end|>");
  EXPECT_GT(built({"special.txt", "--kind", "suffixes", "-o", "s.suffixes"})["tokens"], 1);
}

TEST_F(Corpus, BadInput) {
  const auto refused = [&](const std::vector<std::string>& more, int code,
                           const std::string& named) {
    SCOPED_TRACE(named);
    const ProgramResult result = build(more);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("error: "), HasSubstr(named), Not(HasSubstr("internal error"))));
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(std::filesystem::exists(folder_.file("out.suffixes")));
  };
  const auto suffixes = [](std::vector<std::string> files) {
    files.insert(files.end(), {"--kind", "suffixes", "-o", "out.suffixes"});
    return files;
  };
  refused({"text.txt"}, 2, "--kind");
  refused({"text.txt", "--kind", "sufixes"}, 2, "did you mean 'suffixes'");
  refused({"--kind", "suffixes"}, 2, "files");
  refused(suffixes({"absent.txt"}), 7, "absent.txt");
  refused(suffixes({"."}), 7, "is a folder");
  folder_.write("empty.txt", " \n");
  refused(suffixes({"empty.txt"}), 7, "empty.txt: holds no text");
  folder_.write("broken.jsonl", "{\"a\": \"the\"}\n{\"a\": \n");
  refused(suffixes({"broken.jsonl"}), 7, "broken.jsonl: line 2");
  folder_.write("list.jsonl", "[1]\n");
  refused(suffixes({"list.jsonl"}), 7, "must be a JSON object");
  folder_.write("field.jsonl", "{\"question\": \"the\", \"n\": 3}\n");
  refused(suffixes({"field.jsonl", "--fields", "questoin"}), 7, "did you mean 'question'");
  refused(suffixes({"field.jsonl", "--fields", "n"}), 7, "field 'n' must hold text, not number");
  folder_.write("cut.txt.gz", "\x1f\x8b\x08");
  refused(suffixes({"cut.txt.gz"}), 7, "cut.txt.gz");
  refused(suffixes({"text.txt", "--top", "3"}), 2, "--kind ngrams");
  refused({"text.txt", "--kind", "ngrams", "-o", "x.ngrams", "--gram", "0"}, 2, "--gram");
  refused({"text.txt", "--kind", "suffixes", "-o", "no/folder/x"}, 7, "no folder no/folder");
  refused({"text.txt", "--kind", "suffixes", "-o", "."}, 7, "is a folder");
  refused({"text.txt", "--kind", "suffixes", "--name", "a/b"}, 2, "no name for a corpus");
  refused({"text.txt", "--kind", "suffixes", "--name", "a", "-o", "b"}, 2, "--name");
}

TEST_F(Corpus, InfoOfWhatIsNoneOrDamaged) {
  expect_refused(run({"corpus", "info", "nothing"}), 2, "evalrun corpus build");
  expect_refused(run({"corpus", "info", "./absent"}), 7, "absent");
  expect_refused(run({"corpus", "info", "./text.txt"}), 7, "is not a corpus file");
  built({"text.txt", "--kind", "suffixes", "-o", "out.suffixes"});
  std::string bytes = folder_.read("out.suffixes");
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
  folder_.write("out.suffixes", bytes);
  expect_refused(run({"corpus", "info", "out.suffixes"}), 7, "damaged");
}

// No space: the old file stays, nothing is left behind.
TEST_F(Corpus, FullDiskLeavesTheOldFile) {
  built({"text.txt", "--kind", "suffixes", "-o", "out.suffixes"});
  const std::string before = folder_.read("out.suffixes");
  std::string line;
  for (const std::string& word :
       evalrun_command({"corpus", "build", "-m", tiny_model(), "text.txt", "text.txt", "--kind",
                        "suffixes", "-o", "out.suffixes"}))
    line += " '" + word + "'";
  const ProgramResult result =
      run_command_in(folder_, {"bash", "-c", "trap '' XFSZ; ulimit -f 1; exec" + line});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("out.suffixes: cannot write"), HasSubstr("hint:")));
  EXPECT_EQ(folder_.read("out.suffixes"), before);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp.")));
}

TEST_F(Corpus, PlacesNobodyMayWriteTo) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  std::filesystem::create_directory(folder_.file("locked"));
  std::filesystem::permissions(folder_.file("locked"), std::filesystem::perms::owner_read);
  expect_refused(build({"text.txt", "--kind", "suffixes", "-o", "locked/x"}), 7, "permission");
}

}  // namespace
}  // namespace evalrun::tests
