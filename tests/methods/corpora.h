// Small corpora for tests: random documents, a folder for the files.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "methods/corpus_text.h"
#include "tests/methods/harness.h"

namespace evalrun::tests {

// A folder of its own, removed at the end.
class CorpusFolder {
 public:
  CorpusFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "evalrun-corpus-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~CorpusFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CorpusFolder(const CorpusFolder&) = delete;
  CorpusFolder& operator=(const CorpusFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(path_ / name);
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

using Documents = std::vector<Tokens>;

// 0 to 5 documents of 0 to 120 tokens over `vocab` ids, some of them the same phrase over and over.
inline Documents random_documents(base::Rng& rng, int vocab) {
  Documents documents(rng.below(6));
  for (Tokens& document : documents) {
    document = random_tokens(rng, static_cast<int>(rng.below(120)), vocab);
    if (rng.below(3) != 0 || document.empty()) continue;
    const Tokens phrase = random_tokens(rng, 1 + static_cast<int>(rng.below(9)), vocab);
    for (size_t i = 0; i < document.size(); ++i) document[i] = phrase[i % phrase.size()];
  }
  return documents;
}

inline methods::CorpusText corpus_text(const Documents& documents, methods::Vocabulary vocabulary) {
  methods::CorpusText text(std::move(vocabulary));
  text.add_file();
  for (const Tokens& document : documents) text.add_document(document);
  return text;
}

}  // namespace evalrun::tests
