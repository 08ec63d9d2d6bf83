// From a parameter like datastore=wiki to an opened corpus that fits the target's vocabulary.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "engine/model/model.h"
#include "methods/corpus/corpus_format.h"
#include "methods/corpus/ngram_corpus.h"
#include "methods/corpus/suffix_corpus.h"

namespace evalrun::methods {

Vocabulary vocabulary_of(const engine::Model& model);

// $EVALRUN_HOME/corpora; "" when no folder of ours is known.
std::string corpus_folder();
// Values with a slash or an extension are paths. Anything else is a name: one file per kind and
// vocabulary under corpus_folder(), so that a name serves all models.
bool is_corpus_path(std::string_view value);
// CORPORA/<name>-<first 12 digits of the vocabulary hash>.<kind>; usage_error for names that are no
// file names, or when no folder is known.
std::string named_corpus_path(std::string_view name, CorpusKind kind, const Vocabulary& vocabulary);

// Where parameter `value` of `method` points to; need not exist.
std::string resolve_corpus(const std::string& value, CorpusKind kind, const Vocabulary& vocabulary);

// Opens it. Missing: usage_error with the command that builds it. Of another vocabulary:
// usage_error that names both. Anything else that is wrong with it: data_error. `who` opens
// messages: "rest".
std::shared_ptr<const SuffixCorpus> open_suffix_corpus(const std::string& who,
                                                       const std::string& value,
                                                       const engine::Model& target);
std::shared_ptr<const NgramCorpus> open_ngram_corpus(const std::string& who,
                                                     const std::string& value,
                                                     const engine::Model& target);

}  // namespace evalrun::methods
