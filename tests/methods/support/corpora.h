// Small corpora for tests: random documents.
#pragma once
#include <string>
#include <vector>

#include "methods/corpus/corpus_text.h"
#include "tests/methods/support/harness.h"
#include "tests/temp_folder.h"

namespace evalrun::tests {

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
