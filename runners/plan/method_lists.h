// Named lists of methods: what `--methods fast` and a suite's "methods": ["all"] stand for.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::runners {

struct MethodList {
  std::string name, summary;
  std::vector<std::string> methods;   // as on the command line
  std::vector<std::string> optional;  // need a draft model or a file: measured where that exists
};

// "fast": the look-ups that are faster than plain decoding on most text (docs/full.md). "all":
// every method of the registry at its defaults, without plain decoding, the ablation and synthetic
// acceptance.
const std::vector<MethodList>& method_lists();
const MethodList* find_method_list(std::string_view name);  // null: none has that name
std::string describe_method_lists();                        // "fast (...), all (...)"

// Puts what a list stands for in its place; its optional methods go to `optional`. A method that is
// named beside the list is not added twice.
void expand_method_lists(std::vector<std::string>& methods, std::vector<std::string>& optional);
// The same where nothing is optional. Throws usage_error for a list with optional methods.
std::vector<std::string> expanded_method_lists(std::vector<std::string> methods);

}  // namespace evalrun::runners
