#include "methods/corpus/corpus_files.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/home.h"
#include "engine/tokenizer/tokenizer.h"

namespace evalrun::methods {
namespace {

std::string describe(const Vocabulary& vocabulary) {
  return vocabulary.hash.empty()
             ? fmt::format("{} ids, no tokenizer", vocabulary.size)
             : fmt::format("{} ids, vocabulary {:.12}", vocabulary.size, vocabulary.hash);
}

bool same(const Vocabulary& a, const Vocabulary& b) {
  return a.hash == b.hash && (!a.hash.empty() || a.size == b.size);
}

std::string build_command(const std::string& value, CorpusKind kind, const engine::Model& target) {
  return fmt::format("evalrun corpus build FILES... --kind {} --model {} {} {}", to_string(kind),
                     target.path().empty() ? "MODEL" : target.path(),
                     is_corpus_path(value) ? "-o" : "--name", value);
}

template <typename Corpus>
std::shared_ptr<const Corpus> open(const std::string& who, const std::string& value,
                                   CorpusKind kind, const engine::Model& target) {
  const Vocabulary vocabulary = vocabulary_of(target);
  const std::string path = resolve_corpus(value, kind, vocabulary);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw base::usage_error(fmt::format("{}: there is no corpus '{}' ({})", who, value, path),
                            "build it: " + build_command(value, kind, target));
  auto corpus = std::make_shared<const Corpus>(path);
  const Vocabulary& found = corpus->info().vocabulary;
  if (!same(found, vocabulary))
    throw base::usage_error(
        fmt::format("{}: the corpus was built for another vocabulary\n  target: {} ({})\n"
                    "  corpus: {} ({})",
                    who, target.config().name, describe(vocabulary), path, describe(found)),
        "build one for this model: " + build_command(value, kind, target));
  // Equal hashes and more ids than the model has rows: drafts the model cannot look up.
  if (found.size > target.config().vocab_size)
    throw base::data_error(path, "vocabulary size",
                           fmt::format("{} ids, but {} has {}", found.size, target.config().name,
                                       target.config().vocab_size),
                           "build it with this model's own tokenizer");
  return corpus;
}

}  // namespace

Vocabulary vocabulary_of(const engine::Model& model) {
  if (const engine::Tokenizer* tokenizer = model.tokenizer())
    return {tokenizer->vocabulary_hash(), tokenizer->vocab_size()};
  return {"", model.config().vocab_size};
}

std::string corpus_folder() {
  const std::filesystem::path home = base::home_folder();
  return home.empty() ? "" : (home / "corpora").string();
}

bool is_corpus_path(std::string_view value) {
  return value.find('/') != std::string_view::npos || std::filesystem::path(value).has_extension();
}

std::string named_corpus_path(std::string_view name, CorpusKind kind,
                              const Vocabulary& vocabulary) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find_first_of("/\\*?\"' \t\n") == std::string_view::npos;
  if (!plain || is_corpus_path(name))
    throw base::usage_error(fmt::format("'{}' is no name for a corpus", name),
                            "a name has letters, digits, - and _; a path has a / or an extension");
  const std::string folder = corpus_folder();
  if (folder.empty())
    throw base::usage_error("named corpora lie under EVALRUN_HOME, and neither it nor HOME is set",
                            "set one of them, or give the path of a file");
  const std::string ids = vocabulary.hash.empty() ? fmt::format("ids{}", vocabulary.size)
                                                  : vocabulary.hash.substr(0, 12);
  return fmt::format("{}/{}-{}.{}", folder, name, ids, to_string(kind));
}

std::string resolve_corpus(const std::string& value, CorpusKind kind,
                           const Vocabulary& vocabulary) {
  return is_corpus_path(value) ? value : named_corpus_path(value, kind, vocabulary);
}

std::shared_ptr<const SuffixCorpus> open_suffix_corpus(const std::string& who,
                                                       const std::string& value,
                                                       const engine::Model& target) {
  return open<SuffixCorpus>(who, value, CorpusKind::kSuffixes, target);
}

std::shared_ptr<const NgramCorpus> open_ngram_corpus(const std::string& who,
                                                     const std::string& value,
                                                     const engine::Model& target) {
  return open<NgramCorpus>(who, value, CorpusKind::kNgrams, target);
}

}  // namespace evalrun::methods
