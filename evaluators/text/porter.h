// The Porter stemmer as rouge_score uses it: NLTK's PorterStemmer in its default mode, which is the
// algorithm of 1980 (Porter, "An algorithm for suffix stripping") with Porter's later changes and a
// few of NLTK's own. Checked against nltk 3.10 in tests/evaluators.
#pragma once
#include <string>
#include <string_view>

namespace evalrun::evaluators {

// `word`: lower-case ASCII letters and digits, three or more; shorter ones come back as they are.
// May return "".
std::string porter_stem(std::string_view word);

}  // namespace evalrun::evaluators
