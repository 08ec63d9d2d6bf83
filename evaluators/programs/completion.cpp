// The faults of the official rules are kept, so that figures can be compared: braces are counted in
// strings and comments, too. codegeex: codegeex/benchmark/utils.py and evaluate_humaneval_x.py;
// bigcode: bigcode_eval/tasks/humanevalpack.py, humaneval.py, mbpp.py. Rust has no codegeex rule
// and takes that of the other brace languages. evalrun cuts like codegeex, but keeps functions that
// follow and are called: the official solution of Go/72 has one.
#include "evaluators/programs/completion.h"

#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::evaluators {

using datasets::CodeProblem;

namespace {

re2::StringPiece piece(std::string_view text) { return {text.data(), text.size()}; }

std::string_view up_to_first(std::string_view text, std::string_view word) {
  return text.substr(0, text.find(word));
}
std::string_view up_to_last(std::string_view text, std::string_view word) {
  return text.substr(0, text.rfind(word));
}

// Everything before the first line with text in column 0.
std::string_view indented_lines(std::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r\f\v") != std::string_view::npos && line[0] != ' ' &&
        line[0] != '\t')
      return text.substr(0, begin == 0 ? 0 : begin - 1);
    begin = end + 1;
  }
  return text;
}

// Up to and with the brace that closes one more than were opened.
std::string_view balanced(std::string_view text, int open) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++open;
    if (text[i] == '}' && --open == 0) return text.substr(0, i + 1);
  }
  return {};
}

std::string_view up_to_last_brace(std::string_view text) {
  const size_t last = text.rfind('}');
  return last == std::string_view::npos ? text : text.substr(0, last + 1);
}

std::string java_tail(std::string_view text, int missing) {
  std::string code(text);
  if (const size_t main = code.find("public static void main"); main != std::string::npos)
    code = code.substr(0, main) + "}";
  code = up_to_last_brace(code);
  const auto opened = std::count(code.begin(), code.end(), '{');
  const auto closed = std::count(code.begin(), code.end(), '}');
  if (opened + missing == closed) code += "\n}";
  return code;
}

// Name of what `header`, the text before an opening brace, defines.
std::string defined_name(std::string_view header) {
  static const re2::RE2 keyword(R"(\b(?:const|let|var|function|func|fn)\s+(\w+))",
                                re2::RE2::Latin1),
      parameters(R"((\w+)\s*\([^()]*\)[^()]*$)", re2::RE2::Latin1);
  std::string name;
  if (!re2::RE2::PartialMatch(piece(header), keyword, &name))
    re2::RE2::PartialMatch(piece(header), parameters, &name);
  return name;
}

// The function that `text` completes, and the later ones that it or the test calls. These are
// helpers. In a few Rust problems the open signature is that of a helper, and the function itself
// follows.
std::string_view with_called_functions(const CodeProblem& problem, std::string_view text) {
  std::string_view code = balanced(text, 1);
  // A bound, because every function looks for calls in all before it.
  for (int n = 0; n < 64 && !code.empty(); ++n) {
    const size_t open = text.find('{', code.size());
    if (open == std::string_view::npos) break;
    const std::string_view header = text.substr(code.size(), open - code.size());
    const std::string name = defined_name(header);
    if (name.empty() || header.find('}') != std::string_view::npos) break;
    const re2::RE2 call("\\b" + name + "\\s*\\(", re2::RE2::Latin1);
    if (!re2::RE2::PartialMatch(piece(code), call) && !re2::RE2::PartialMatch(problem.test, call))
      break;
    const std::string_view more = balanced(text.substr(open), 0);
    if (more.empty()) break;
    code = text.substr(0, open + more.size());
  }
  return code;
}

std::string_view first_function(const CodeProblem& problem, std::string_view text, int open,
                                CodeConvention convention) {
  const bool official = convention != CodeConvention::kEvalrun && problem.language != "rust";
  return official ? balanced(text, open) : with_called_functions(problem, text);
}

std::string cut_codegeex(const CodeProblem& problem, std::string_view text,
                         CodeConvention convention) {
  const std::string& language = problem.language;
  if (language == "python") return std::string(indented_lines(text));
  if (const std::string_view whole = first_function(problem, text, 1, convention); !whole.empty())
    text = whole;
  if (language == "java") return java_tail(text, 1);
  if (language == "go")
    for (const char* word : {"\n//", "\nfunc main("}) text = up_to_last(text, word);
  return std::string(up_to_last_brace(text));
}

std::vector<const char*> bigcode_stops(const CodeProblem& problem) {
  switch (problem.set) {
    case CodeProblem::Set::kMbpp:
      return {"\nclass", "\nassert", "\n\"\"\"", "\nprint", "\nif", "\n<|/", "\n```"};
    case CodeProblem::Set::kHumanEval:
      return {"\nclass", "\ndef", "\n#", "\n@", "\nprint", "\nif", "\n```", "<file_sep>"};
    case CodeProblem::Set::kHumanEvalX:
      if (problem.language == "python")
        return {"\nclass", "\ndef", "\n#", "\n@", "\nprint", "\nif", "\nassert"};
      if (problem.language == "go") return {"\n//", "\nfunc main(", "struct", "\nfunc"};
  }
  return {};
}

std::string cut_bigcode(const CodeProblem& problem, std::string_view text) {
  for (const char* word : bigcode_stops(problem)) text = up_to_first(text, word);
  text = up_to_first(text, "<|endoftext|>");
  if (problem.set != CodeProblem::Set::kHumanEvalX) return std::string(text);
  if (problem.language == "python") return std::string(indented_lines(text));
  const bool java = problem.language == "java";
  if (const std::string_view whole =
          first_function(problem, text, java ? 2 : 1, CodeConvention::kBigcode);
      !whole.empty())
    return std::string(whole);
  return java ? java_tail(text, -1) : std::string(up_to_last_brace(text));
}

struct Block {
  std::string_view label, code;
};

// Fenced blocks (``` or ~~~ at the start of a line); an unclosed one ends with the text.
std::vector<Block> fenced_blocks(std::string_view text) {
  std::vector<Block> blocks;
  std::string_view fence;
  size_t code_begin = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool is_fence = line.starts_with("```") || line.starts_with("~~~");
    if (is_fence && fence.empty()) {
      fence = line.substr(0, 3);
      line.remove_prefix(std::min(line.find_first_not_of("`~"), line.size()));
      blocks.push_back({line.substr(0, line.find_first_of(" \t\r{")), {}});
      code_begin = std::min(end + 1, text.size());
    } else if (is_fence && line.starts_with(fence)) {
      blocks.back().code = text.substr(code_begin, begin - code_begin);
      fence = {};
    }
    begin = end + 1;
  }
  if (!fence.empty()) blocks.back().code = text.substr(code_begin);
  return blocks;
}

bool is_label_of(const std::string& language, std::string_view label) {
  std::string lower(label);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  static const std::vector<std::pair<std::string, std::vector<std::string>>> labels = {
      {"python", {"python", "python3", "py"}},
      {"cpp", {"cpp", "c++", "cc", "cxx", "c"}},
      {"java", {"java"}},
      {"js", {"js", "javascript", "node", "jsx"}},
      {"go", {"go", "golang"}},
      {"rust", {"rust", "rs"}}};
  for (const auto& [name, known] : labels)
    if (name == language) return std::find(known.begin(), known.end(), lower) != known.end();
  return false;
}

std::string_view chosen_block(const CodeProblem& problem, std::string_view text) {
  const std::vector<Block> blocks = fenced_blocks(text);
  if (blocks.empty()) return text;
  const std::string name = entry_point(problem);
  constexpr size_t kLookedAt = 256;  // of the blocks; a pattern is compiled for each
  for (size_t i = 0; i < std::min(blocks.size(), kLookedAt); ++i)
    if (defines_function(problem.language, blocks[i].code, name)) return blocks[i].code;
  for (const Block& block : blocks)
    if (is_label_of(problem.language, block.label)) return block.code;
  return blocks.front().code;
}

}  // namespace

size_t matching_brace(std::string_view code, size_t open) {
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    const char c = code[i];
    const std::string_view rest = code.substr(i);
    if (rest.starts_with("//")) {
      i = std::min(code.find('\n', i), code.size());
    } else if (rest.starts_with("/*")) {
      const size_t end = code.find("*/", i + 2);
      if (end == std::string_view::npos) return end;
      i = end + 1;
    } else if (c == '"' || c == '`') {
      for (++i; i < code.size() && code[i] != c; ++i)
        if (code[i] == '\\' && c == '"') ++i;
    } else if (c == '\'') {
      // A character, '{' or '\n' - but a lone ' is a lifetime in Rust.
      if (i + 2 < code.size() && code[i + 1] == '\\')
        i = std::min(code.find('\'', i + 3), code.size());
      else if (i + 2 < code.size() && code[i + 2] == '\'')
        i += 2;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

std::string entry_point(const CodeProblem& problem) {
  if (!problem.entry_point.empty()) return problem.entry_point;
  const bool in_declaration = problem.language == "rust" || problem.language == "go";
  const std::string& text =
      in_declaration && !problem.declaration.empty() ? problem.declaration : problem.prompt;
  // The last signature counts: helpers come before it.
  const char* pattern = problem.language == "python" ? R"((?m)^def\s+(\w+)\s*\()"
                        : problem.language == "js"
                            ? R"((?m)^\s*(?:const|let|var|function)\s+(\w+)\s*[=(])"
                        : problem.language == "go"   ? R"((?m)^func\s+(\w+)\s*[(\[])"
                        : problem.language == "rust" ? R"((?m)^\s*(?:pub\s+)?fn\s+(\w+)\s*[(<])"
                                                     : R"((?m)^[^/*\n]*?\b(\w+)\s*\([^;]*\{\s*$)";
  re2::RE2 signature(pattern, re2::RE2::Latin1);
  EVALRUN_CHECK(signature.ok());
  re2::StringPiece rest = piece(text);
  std::string name, last;
  while (re2::RE2::FindAndConsume(&rest, signature, &name)) last = name;
  return last;
}

bool defines_function(std::string_view language, std::string_view code, const std::string& name) {
  if (name.empty()) return false;
  const std::string n = re2::RE2::QuoteMeta(name);
  const std::string pattern =
      language == "python" ? fmt::format(R"((?m)^\s*(?:async\s+)?def\s+{}\s*\()", n)
      : language == "js" ? fmt::format(R"((?:\bfunction\s+{0}\b|\b(?:const|let|var)\s+{0}\s*=))", n)
      : language == "go" ? fmt::format(R"(\bfunc\s+{}\s*[(\[])", n)
      : language == "rust" ? fmt::format(R"(\bfn\s+{}\s*[(<])", n)
                           : fmt::format(R"(\b{}\s*\([^;{{}}]*\)[^;{{}}=]*\{{)", n);
  const re2::RE2 definition(pattern, re2::RE2::Latin1);
  EVALRUN_CHECK(definition.ok(), "{}", pattern);
  return re2::RE2::PartialMatch(piece(code), definition);
}

std::string cut_completion(const CodeProblem& problem, std::string_view text,
                           CodeConvention convention) {
  if (convention == CodeConvention::kBigcode) return cut_bigcode(problem, text);
  if (problem.set == CodeProblem::Set::kMbpp) return std::string(text);
  return cut_codegeex(problem, text, convention);
}

Answer read_answer(const CodeProblem& problem, bool chat, std::string_view text,
                   CodeConvention convention) {
  const bool mbpp = problem.set == CodeProblem::Set::kMbpp;
  if (!chat) return {cut_completion(problem, text, convention), mbpp};
  const std::string_view block = chosen_block(problem, text);
  if (mbpp || defines_function(problem.language, block, entry_point(problem)))
    return {std::string(block), true};
  return {cut_completion(problem, block, convention), false};
}

}  // namespace evalrun::evaluators
