// Corpora on disk against naive counts, and damaged files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "methods/corpus/corpus_files.h"
#include "tests/methods/support/corpora.h"

namespace evalrun::tests::corpus_test {
namespace {

using methods::CorpusInfo;
using methods::CorpusKind;
using methods::NgramCorpus;
using methods::NgramOptions;
using methods::SuffixCorpus;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kHash(64, 'a'), kOtherHash(64, 'b');

// Vocabularies in which everything repeats, and ids of three bytes.
int some_vocabulary(base::Rng& rng) {
  const int sizes[] = {1, 2, 3, 7, 40, 65534, 65535, 65536, 70000, methods::kMaxVocabulary};
  return sizes[rng.below(std::size(sizes))];
}

// Few different ids of a large vocabulary, the highest among them: else nothing would repeat.
Documents documents_of(base::Rng& rng, int vocab) {
  const int used = std::min(vocab, 2 + static_cast<int>(rng.below(5)));
  Documents documents = random_documents(rng, used);
  for (Tokens& document : documents)
    for (int32_t& id : document) id = vocab - 1 - id;
  return documents;
}

// ---- suffixes -----------------------------------------------------------------------------------

struct Place {
  size_t document, at;
};

std::vector<Tokens> sorted_suffixes(const Documents& documents) {
  std::vector<Tokens> all;
  for (const Tokens& d : documents)
    for (size_t i = 0; i < d.size(); ++i)
      all.emplace_back(d.begin() + static_cast<std::ptrdiff_t>(i), d.end());
  std::sort(all.begin(), all.end(), [](const Tokens& a, const Tokens& b) {
    const size_t n = std::min(a.size(), b.size());
    const auto [x, y] =
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin());
    if (x != a.begin() + static_cast<std::ptrdiff_t>(n)) return *x < *y;
    return a.size() > b.size();  // the separator after the shorter one is the largest id
  });
  return all;
}

bool begins_with(const Tokens& text, std::span<const int32_t> pattern) {
  return text.size() >= pattern.size() && std::equal(pattern.begin(), pattern.end(), text.begin());
}

void expect_equals_scan(const SuffixCorpus& corpus, const Documents& documents, int vocab,
                        base::Rng& rng) {
  const std::vector<Tokens> expected = sorted_suffixes(documents);
  ASSERT_EQ(corpus.size(), expected.size());
  for (uint64_t i = 0; i < corpus.size(); ++i) {
    const Tokens& suffix = expected[i];
    for (size_t depth = 0; depth < suffix.size(); ++depth)
      ASSERT_EQ(corpus.token_at(i, depth), suffix[depth]) << i << " + " << depth;
    ASSERT_EQ(corpus.token_at(i, suffix.size()), -1) << i;
  }
  for (int query = 0; query < 60; ++query) {
    Tokens pattern;
    if (!expected.empty() &&
        query % 4 != 0) {  // one that occurs, perhaps with a last token changed
      const Tokens& suffix = expected[rng.below(expected.size())];
      pattern.assign(suffix.begin(), suffix.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(
                                                          suffix.size(), rng.below(12))));
      if (query % 4 == 1 && !pattern.empty()) pattern.back() = random_tokens(rng, 1, vocab)[0];
    } else {
      pattern = random_tokens(rng, static_cast<int>(rng.below(5)), vocab);
    }
    const auto count =
        static_cast<uint64_t>(std::count_if(expected.begin(), expected.end(), [&](const Tokens& s) {
          return begins_with(s, pattern);
        }));
    const SuffixCorpus::Range found = corpus.find(pattern);
    ASSERT_EQ(found.size(), count);
    for (uint64_t i = found.begin; i < found.end; ++i)
      ASSERT_TRUE(begins_with(expected[i], pattern));
  }
  EXPECT_TRUE(corpus.find(Tokens{-1}).empty());
  EXPECT_TRUE(corpus.find(Tokens{vocab}).empty()) << "the separator is nobody's to ask for";
}

TEST(SuffixCorpus, EqualsTheScan) {
  const TempFolder folder;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const int vocab = some_vocabulary(rng);
    const Documents documents = documents_of(rng, vocab);
    const std::string path = folder.file("s.suffixes");
    const CorpusInfo written =
        methods::build_suffix_corpus(path, corpus_text(documents, {"", vocab}), seed % 4 == 3);
    const SuffixCorpus corpus(path);
    corpus.file().verify();
    EXPECT_EQ(corpus.info().content_hash, written.content_hash);
    EXPECT_EQ(corpus.info().file_bytes, std::filesystem::file_size(path));
    expect_equals_scan(corpus, documents, vocab, rng);
    if (HasFatalFailure()) return;
  }
}

TEST(SuffixCorpus, WideAndNarrowPlacesAnswerAlike) {
  const TempFolder folder;
  base::Rng rng(3);
  const Documents documents = {random_tokens(rng, 500, 4), random_tokens(rng, 300, 4)};
  const auto text = corpus_text(documents, {"", 4});
  const auto sorted = methods::sort_suffixes(text), wide = methods::sort_suffixes(text, true);
  ASSERT_EQ(sorted.size(), 800u);
  ASSERT_EQ(wide.size(), 800u);
  for (uint64_t i = 0; i < 800; ++i) ASSERT_EQ(sorted[i], wide[i]);
}

TEST(SuffixCorpus, NothingAndOneToken) {
  const TempFolder folder;
  const std::string path = folder.file("s.suffixes");
  methods::build_suffix_corpus(path, corpus_text({}, {"", 9}));
  const SuffixCorpus nothing(path);
  EXPECT_EQ(nothing.size(), 0u);
  EXPECT_TRUE(nothing.find(Tokens{1}).empty());
  EXPECT_TRUE(nothing.find(Tokens{}).empty());
  const std::string one_path = folder.file("one.suffixes");
  methods::build_suffix_corpus(one_path, corpus_text({{}, {4}, {}}, {"", 9}));
  const SuffixCorpus one(one_path);
  EXPECT_EQ(one.info().source.documents, 1u);
  EXPECT_EQ(one.find(Tokens{4}), (SuffixCorpus::Range{0, 1}));
  EXPECT_TRUE(one.find(Tokens{4, 4}).empty());
  EXPECT_EQ(one.token_at(0, 0), 4);
  EXPECT_EQ(one.token_at(0, 1), -1);
  EXPECT_EQ(one.token_at(0, 1000), -1);
}

TEST(CorpusText, RefusesIdsOutsideTheVocabulary) {
  methods::CorpusText text({"", 5});
  EXPECT_THROW(text.add_document(Tokens{1, 5}), base::InternalError);
  EXPECT_THROW(text.add_document(Tokens{-1}), base::InternalError);
  EXPECT_THROW(methods::CorpusText({"", 0}), base::InternalError);
  EXPECT_THROW(methods::CorpusText({"", methods::kMaxVocabulary + 1}), base::InternalError);
}

// ---- n-grams ------------------------------------------------------------------------------------

using NaiveTable = std::map<Tokens, std::vector<std::pair<Tokens, uint32_t>>>;

NaiveTable naive_grams(const Documents& documents, const NgramOptions& o) {
  std::map<Tokens, std::map<Tokens, uint32_t>> counted;
  for (const Tokens& d : documents)
    for (int n = 1; n <= o.max_key; ++n)
      for (size_t i = 0; i + static_cast<size_t>(n + o.gram) <= d.size(); ++i) {
        const auto at = d.begin() + static_cast<std::ptrdiff_t>(i);
        ++counted[Tokens(at, at + n)][Tokens(at + n, at + n + o.gram)];
      }
  NaiveTable table;
  for (const auto& [key, grams] : counted) {
    std::vector<std::pair<Tokens, uint32_t>> list(grams.begin(), grams.end());
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (list.size() > static_cast<size_t>(o.top)) list.resize(static_cast<size_t>(o.top));
    std::erase_if(list,
                  [&](const auto& g) { return g.second < static_cast<uint32_t>(o.min_count); });
    if (!list.empty()) table[key] = list;
  }
  return table;
}

std::vector<std::pair<Tokens, uint32_t>> list_of(const NgramCorpus::Grams& grams) {
  std::vector<std::pair<Tokens, uint32_t>> list;
  for (size_t i = 0; i < grams.size(); ++i)
    list.emplace_back(Tokens(grams[i].begin(), grams[i].end()), grams.count(i));
  return list;
}

TEST(NgramCorpus, EqualsTheNaiveCount) {
  const TempFolder folder;
  size_t kept = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const int vocab = some_vocabulary(rng);
    const Documents documents = documents_of(rng, vocab);
    NgramOptions o;
    o.max_key = 1 + static_cast<int>(rng.below(5));
    o.gram = 1 + static_cast<int>(rng.below(5));
    o.top = 1 + static_cast<int>(rng.below(6));
    o.min_count = 1 + static_cast<int>(rng.below(6));
    const std::string path = folder.file("n.ngrams");
    methods::build_ngram_corpus(path, corpus_text(documents, {"", vocab}), o);
    const NgramCorpus corpus(path);
    corpus.file().verify();
    ASSERT_EQ(corpus.max_key(), o.max_key);
    ASSERT_EQ(corpus.gram_length(), o.gram);
    EXPECT_EQ(corpus.options().top, o.top);
    EXPECT_EQ(corpus.options().min_count, o.min_count);
    const NaiveTable expected = naive_grams(documents, o);
    kept += expected.size();
    std::vector<uint64_t> keys(static_cast<size_t>(o.max_key) + 1), grams(keys.size());
    for (const auto& [key, list] : expected) {
      ASSERT_EQ(list_of(corpus.find(key)), list);
      ++keys[key.size()];
      grams[key.size()] += list.size();
    }
    for (int n = 1; n <= o.max_key; ++n) {
      EXPECT_EQ(corpus.stats(n).keys, keys[static_cast<size_t>(n)]);
      EXPECT_EQ(corpus.stats(n).grams, grams[static_cast<size_t>(n)]);
      const Tokens other = random_tokens(rng, n, vocab);
      EXPECT_EQ(corpus.find(other).empty(), !expected.contains(other));
      EXPECT_TRUE(corpus.find(Tokens(static_cast<size_t>(n), vocab)).empty());
    }
  }
  EXPECT_GT(kept, 1000u) << "a test over empty tables shows nothing";
}

// More grams of one key than are remembered while it is counted.
TEST(NgramCorpus, KeepsTheMostFrequentOfVeryMany) {
  const TempFolder folder;
  base::Rng rng(5);
  Tokens document;
  for (int i = 0; i < 6000; ++i) {
    document.push_back(0);
    document.push_back(1 + static_cast<int32_t>(rng.below(1 + rng.below(900))));
  }
  const NgramOptions o{1, 1, 3, 1};
  methods::build_ngram_corpus(folder.file("n.ngrams"), corpus_text({document}, {"", 1000}), o);
  const NgramCorpus corpus(folder.file("n.ngrams"));
  const NaiveTable expected = naive_grams({document}, o);
  ASSERT_EQ(corpus.find(Tokens{0}).size(), 3u);
  for (const auto& [key, list] : expected) ASSERT_EQ(list_of(corpus.find(key)), list);
}

TEST(NgramCorpus, DefaultsAreThoseOfThePaperAndNothingIsFine) {
  const TempFolder folder;
  const NgramOptions defaults;
  EXPECT_EQ(defaults.max_key, 4);
  EXPECT_EQ(defaults.gram, 4);
  EXPECT_EQ(defaults.top, 20);
  EXPECT_EQ(defaults.min_count, 6);
  for (const Documents& documents : {Documents{}, Documents{{3}}, Documents{{}, {1, 2, 3, 4}}}) {
    methods::build_ngram_corpus(folder.file("n.ngrams"), corpus_text(documents, {"", 9}), {});
    const NgramCorpus corpus(folder.file("n.ngrams"));
    for (int n = 1; n <= 4; ++n) EXPECT_EQ(corpus.stats(n).keys, 0u);
    EXPECT_TRUE(corpus.find(Tokens{3}).empty());
  }
  EXPECT_THROW(methods::build_ngram_corpus("unused", corpus_text({}, {"", 9}), {0, 4, 20, 6}),
               base::Error);
  EXPECT_THROW(methods::build_ngram_corpus("unused", corpus_text({}, {"", 9}), {4, 4, 20, 0}),
               base::Error);
}

TEST(NgramCorpus, VisitsLongKeysFirst) {
  const TempFolder folder;
  // After 1 2: 3 twice, 4 once. After any 2: 5 three times too.
  const Documents documents = {{1, 2, 3}, {1, 2, 3}, {1, 2, 4}, {7, 2, 5}, {7, 2, 5}, {7, 2, 5}};
  methods::build_ngram_corpus(folder.file("n.ngrams"), corpus_text(documents, {"", 9}),
                              {2, 1, 20, 1});
  const NgramCorpus corpus(folder.file("n.ngrams"));
  const auto visit = [&](const Tokens& text, size_t most) {
    Tokens seen;
    corpus.visit_suffixes(text, [&](std::span<const int32_t> gram) {
      seen.push_back(gram[0]);
      return seen.size() < most;
    });
    return seen;
  };
  EXPECT_THAT(visit({6, 6, 1, 2}, 100), ElementsAre(3, 4, 5, 3, 4));
  EXPECT_THAT(visit({6, 6, 1, 2}, 2), ElementsAre(3, 4));
  EXPECT_THAT(visit({2}, 100), ElementsAre(5, 3, 4));
  EXPECT_THAT(visit({}, 100), ElementsAre());
}

// ---- damage -------------------------------------------------------------------------------------

// Everything a method may ask of a file; ids must lie in its vocabulary whatever its bytes are.
void use(const std::string& path, CorpusKind kind, int vocab) {
  int size = 0;
  const auto id = [&size](int32_t token) { EXPECT_TRUE(token >= 0 && token < size) << token; };
  if (kind == CorpusKind::kNgrams) {
    const NgramCorpus corpus(path);
    size = corpus.info().vocabulary.size;
    for (int32_t a = 0; a < vocab; ++a)
      for (int32_t b = 0; b < vocab; ++b)
        corpus.visit_suffixes(Tokens{0, 1, a, b}, [&](std::span<const int32_t> gram) {
          for (int32_t token : gram) id(token);
          return true;
        });
    return;
  }
  const SuffixCorpus corpus(path);
  size = corpus.info().vocabulary.size;
  for (int32_t a = 0; a < vocab; ++a) {
    const SuffixCorpus::Range range = corpus.find(Tokens{a, 1});
    for (uint64_t i = range.begin; i < range.end; ++i)
      for (uint64_t depth = 0; depth < 20; ++depth)
        if (const int32_t token = corpus.token_at(i, depth); token != -1) id(token);
  }
}

// True when it was refused with a data error that names the file and a remedy.
bool refused(const std::function<void()>& action, const std::string& what) {
  try {
    action();
    return false;
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData) << what << ": " << e.what();
    EXPECT_THAT(e.what(), AllOf(HasSubstr("damaged"), HasSubstr("corpus build"))) << what;
  } catch (const std::exception& e) {
    ADD_FAILURE() << what << ": " << e.what();
  }
  return true;
}

class DamagedCorpus : public testing::TestWithParam<CorpusKind> {
 protected:
  static constexpr int kVocab = 6;
  DamagedCorpus() {
    base::Rng rng(9);
    const Documents documents = {random_tokens(rng, 400, kVocab), random_tokens(rng, 301, kVocab)};
    const auto text = corpus_text(documents, {kHash, kVocab});
    path_ = folder_.file("whole");
    if (GetParam() == CorpusKind::kNgrams)
      methods::build_ngram_corpus(path_, text, {3, 2, 5, 2});
    else
      methods::build_suffix_corpus(path_, text);
    whole_ = base::read_file(path_);
  }
  void use_file(const std::string& path) const { use(path, GetParam(), kVocab); }

  TempFolder folder_;
  std::string path_, whole_;
};

TEST_P(DamagedCorpus, TheWholeFileIsFine) {
  use_file(path_);
  methods::CorpusFile(path_).verify();
  EXPECT_EQ(methods::CorpusFile(path_).info().vocabulary.hash, kHash);
}

TEST_P(DamagedCorpus, CutAnywhereIsRefused) {
  std::vector<size_t> cuts = {1, 7, 8, 100, 1023, 1024, whole_.size() - 1};
  for (size_t i = 1; i < 64; ++i) cuts.push_back(whole_.size() * i / 64);
  for (const size_t cut : cuts) {
    const std::string what = fmt::format("cut at {} of {}", cut, whole_.size());
    const std::string path = folder_.write("cut", whole_.substr(0, cut));
    EXPECT_TRUE(refused([&] { use_file(path); }, what)) << what;
  }
  const std::string longer = folder_.write("longer", whole_ + std::string(64, '\0'));
  EXPECT_TRUE(refused([&] { use_file(longer); }, "longer"));
}

TEST_P(DamagedCorpus, EveryChangeOfTheHeaderIsRefused) {
  for (size_t at = 12; at < 1024; ++at) {  // after magic and version
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    const std::string path = folder_.write("flip", bytes);
    const std::string what = fmt::format("byte {}", at);
    EXPECT_TRUE(refused([&] { use_file(path); }, what)) << what;
  }
}

// Bytes of the sections are checked where they are read, not when the file is opened: such a file
// may answer something else, with ids of the vocabulary. verify() finds every change.
TEST_P(DamagedCorpus, ChangedSectionsNeverCrashAndAreFound) {
  base::Rng rng(4);
  int refusals = 0;
  constexpr int kRounds = 1500;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = whole_;
    for (uint64_t n = 1 + rng.below(4); n > 0; --n) {
      const size_t at = 1024 + rng.below(bytes.size() - 1024);
      const uint64_t kind = rng.below(4);
      for (size_t k = at; k < std::min(bytes.size(), at + (kind == 3 ? 8 : 1)); ++k)
        bytes[k] = kind == 0   ? static_cast<char>(bytes[k] ^ (1 << rng.below(8)))
                   : kind == 1 ? static_cast<char>(rng.below(256))
                               : static_cast<char>(0xFF);
    }
    if (bytes == whole_) continue;
    const std::string path = folder_.write("flip", bytes);
    const std::string what = fmt::format("round {}", round);
    refusals += refused([&] { use_file(path); }, what);
    EXPECT_TRUE(refused([&] { methods::CorpusFile(path).verify(); }, what)) << what;
  }
  EXPECT_GT(refusals, kRounds / 10) << "the changes do hit something";
}

// A header whose checksum is right but whose sections are not: what a broken writer would leave.
TEST_P(DamagedCorpus, HeadersThatLieAreRefused) {
  base::Rng rng(6);
  const auto sign = [](std::string& bytes) {
    const std::string hex = base::sha256_hex(std::string_view(bytes).substr(0, 1016));
    const uint64_t check = std::stoull(hex.substr(0, 16), nullptr, 16);
    std::copy_n(reinterpret_cast<const char*>(&check), 8, bytes.begin() + 1016);
  };
  std::string intact = whole_;
  sign(intact);
  ASSERT_EQ(intact, whole_) << "the test signs as the writer does";
  int refusals = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = whole_;
    const size_t at = 12 + rng.below(round % 2 == 0 ? 400 : 1000);
    for (size_t k = at; k < std::min<size_t>(1016, at + 1 + rng.below(8)); ++k)
      bytes[k] = static_cast<char>(rng.below(3) == 0 ? 0xFF : rng.below(256));
    sign(bytes);
    const std::string path = folder_.write("lie", bytes);
    try {
      use_file(path);
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), base::ExitCode::kData) << e.what();
      ++refusals;
    }
  }
  EXPECT_GT(refusals, 100);
}

TEST_P(DamagedCorpus, OtherFilesAreNamed) {
  const auto message = [&](const std::string& bytes) -> std::string {
    try {
      use_file(folder_.write("other", bytes));
    } catch (const base::Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message(""), HasSubstr("is not a corpus file"));
  EXPECT_THAT(message("a text\n"), HasSubstr("is not a corpus file"));
  std::string version = whole_;
  version[8] = 9;
  EXPECT_THAT(message(version),
              AllOf(HasSubstr("version: written as format version 9"), HasSubstr("corpus build")));
  const bool ngrams = GetParam() == CorpusKind::kNgrams;
  try {
    use(path_, ngrams ? CorpusKind::kSuffixes : CorpusKind::kNgrams, kVocab);
    ADD_FAILURE() << "the other kind was taken";
  } catch (const base::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(ngrams ? "holds ngrams, expected suffixes"
                                           : "holds suffixes, expected ngrams"));
  }
  EXPECT_THROW(use_file(folder_.file("absent")), base::Error);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DamagedCorpus,
                         testing::Values(CorpusKind::kNgrams, CorpusKind::kSuffixes),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

// ---- names and vocabularies ---------------------------------------------------------------------

class CorpusNames : public testing::Test {
 protected:
  CorpusNames() { setenv("EVALRUN_HOME", folder_.file("home").c_str(), 1); }
  ~CorpusNames() override { unsetenv("EVALRUN_HOME"); }
  static std::string message(const std::function<void()>& action, base::ExitCode code) {
    try {
      action();
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      return e.what();
    }
    return "";
  }
  TempFolder folder_;
};

TEST_F(CorpusNames, NamesLieInOurFolderPathsWhereTheySay) {
  const methods::Vocabulary with{kHash, 100}, without{"", 24};
  const auto resolve = [](const std::string& value, const methods::Vocabulary& v) {
    return methods::resolve_corpus(value, CorpusKind::kSuffixes, v);
  };
  const std::string home = folder_.file("home");
  EXPECT_EQ(resolve("wiki", with), home + "/corpora/wiki-aaaaaaaaaaaa.suffixes");
  EXPECT_EQ(resolve("wiki", without), home + "/corpora/wiki-ids24.suffixes");
  EXPECT_EQ(resolve("./wiki", with), "./wiki");
  EXPECT_EQ(resolve("wiki.suffixes", with), "wiki.suffixes");
  for (const char* bad : {"", "a b", "*"})
    EXPECT_THAT(message([&] { resolve(bad, with); }, base::ExitCode::kUsage),
                HasSubstr("no name for a corpus"));
}

TEST_F(CorpusNames, MissingOnesSayHowTheyAreBuilt) {
  const auto model = small_model(1, 24);
  const auto missing = [&](const std::string& value) {
    return message([&] { methods::open_ngram_corpus("method", value, *model); },
                   base::ExitCode::kUsage);
  };
  EXPECT_THAT(missing("wiki"),
              AllOf(HasSubstr("method: there is no corpus 'wiki'"),
                    HasSubstr("evalrun corpus build FILES... --kind ngrams --model random:1 --name "
                              "wiki")));
  EXPECT_THAT(missing("./absent"), HasSubstr("-o ./absent"));
}

TEST_F(CorpusNames, OtherVocabulariesAreRefused) {
  const auto model = small_model(1, 24);  // no tokenizer: as many ids and no hash
  const auto open = [&](methods::Vocabulary vocabulary) {
    const std::string path = folder_.file("c.suffixes");
    methods::build_suffix_corpus(path, corpus_text({{1, 2, 3}}, std::move(vocabulary)));
    return message([&] { methods::open_suffix_corpus("rest", path, *model); },
                   base::ExitCode::kUsage);
  };
  EXPECT_EQ(open({"", 24}), "");
  EXPECT_THAT(open({"", 25}), AllOf(HasSubstr("another vocabulary"), HasSubstr("24 ids"),
                                    HasSubstr("25 ids"), HasSubstr("corpus build")));
  EXPECT_THAT(open({kOtherHash, 24}), HasSubstr("bbbbbbbbbbbb"));
}

}  // namespace
}  // namespace evalrun::tests::corpus_test
