#include "tests/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "engine/base/error.h"
#include "evaluators/generations_file.h"
#include "evaluators/gsm8k.h"
#include "evaluators/judge/judge.h"
#include "evaluators/judge/judge_client.h"
#include "evaluators/programs/completion.h"
#include "evaluators/text/bleu.h"
#include "evaluators/text/lcs.h"
#include "evaluators/text/porter.h"
#include "evaluators/text/rouge.h"
#include "reports/claims/audit.h"

namespace evalrun::fuzz {

namespace {

using evaluators::RougeKind;
using evaluators::RougeScore;

// A file without a disk.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", 0)) { EVALRUN_CHECK(fd_ >= 0); }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string hold(std::string_view bytes) {
    EVALRUN_CHECK(::ftruncate(fd_, 0) == 0);
    EVALRUN_CHECK(::pwrite(fd_, bytes.data(), bytes.size(), 0) ==
                  static_cast<ssize_t>(bytes.size()));
    return fmt::format("/proc/self/fd/{}", fd_);
  }

 private:
  int fd_;
};

datasets::LoadedDataset two_prompts() {
  datasets::LoadedDataset set;
  set.info.name = set.info.family = "set";
  for (const char* id : {"set/0", "set/1"}) {
    datasets::Prompt prompt;
    prompt.id = id;
    prompt.turns.assign(set.prompts.size() + 1, "question");
    set.prompts.push_back(prompt);
  }
  return set;
}

void check_share(const RougeScore& score) {
  EVALRUN_CHECK(score.status == "ok" || score.status.starts_with("empty ") ||
                score.status == "too long");
  for (const double share : {score.precision, score.recall, score.f})
    EVALRUN_CHECK(share >= 0 && share <= 1, "{}", share);
}

}  // namespace

void jsonl(std::string_view bytes) {
  static MemoryFile file;
  try {
    const datasets::LoadedDataset set = datasets::load_jsonl(file.hold(bytes));
    EVALRUN_CHECK(!set.prompts.empty());
    for (const datasets::Prompt& prompt : set.prompts)
      EVALRUN_CHECK(!prompt.id.empty() && !prompt.turns.empty());
  } catch (const base::Error& error) {
    EVALRUN_CHECK(!error.message().empty());
  }
}

void generations(std::string_view bytes) {
  static const datasets::LoadedDataset kSet = two_prompts();
  try {
    const evaluators::GenerationsFile file = evaluators::read_generations(
        datasets::maybe_gunzip(std::string(bytes), "bytes"), "bytes", kSet);
    for (const evaluators::OutsideGeneration& generation : file.generations)
      EVALRUN_CHECK(generation.texts.size() == generation.prompt + 1 && generation.sample >= 0);
  } catch (const base::Error& error) {
    EVALRUN_CHECK(!error.message().empty());
  }
}

void gsm8k(std::string_view bytes) {
  namespace ev = evaluators;
  for (const std::string& number :
       {ev::extract_gsm8k_strict(bytes), ev::extract_gsm8k_flexible(bytes)}) {
    EVALRUN_CHECK(number == ev::kGsm8kInvalid || bytes.find(number) != std::string_view::npos);
    EVALRUN_CHECK(ev::gsm8k_equal(number, number));
    ev::gsm8k_equal(number, bytes);
  }
  const std::string decimal = ev::extract_gsm8k_decimal(bytes);
  ev::gsm8k_reference(bytes);
  if (decimal == ev::kGsm8kInvalid) return;
  EVALRUN_CHECK(ev::extract_gsm8k_decimal(decimal) == decimal, "{}", decimal);
  const std::string canonical = ev::canonical_decimal(decimal);
  EVALRUN_CHECK(ev::canonical_decimal(canonical) == canonical, "{}", canonical);
}

void rouge(std::string_view bytes) {
  const size_t middle = std::min(bytes.find('\xff'), bytes.size());
  const std::string_view answer = bytes.substr(0, middle);
  const std::string_view reference = bytes.substr(std::min(middle + 1, bytes.size()));
  for (const RougeKind kind : {RougeKind::kRouge1, RougeKind::kRouge2, RougeKind::kRougeL}) {
    check_share(evaluators::rouge_pltrdy(kind, answer, reference));
    // A text is like itself, but for pairs of words where there is one word.
    const RougeScore same = evaluators::rouge_pltrdy(kind, answer, answer);
    EVALRUN_CHECK(same.status != "ok" || same.f > 0.99 || kind == RougeKind::kRouge2);
  }
  for (const bool stemmer : {false, true}) {
    const auto score = [&](RougeKind kind, std::string_view a, std::string_view b) {
      const RougeScore found = evaluators::rouge_google(kind, a, b, {stemmer});
      check_share(found);
      return found;
    };
    const RougeScore words = score(RougeKind::kRouge1, answer, reference);
    const RougeScore sequence = score(RougeKind::kRougeL, answer, reference);
    EVALRUN_CHECK(sequence.f <= words.f + 1e-12);
    EVALRUN_CHECK(score(RougeKind::kRougeL, reference, answer).precision == sequence.recall);
    score(RougeKind::kRouge2, answer, reference);
    EVALRUN_CHECK(score(RougeKind::kRougeLsum, answer, reference).f <= words.f + 1e-12);
  }
  // Bytes as words: the walk is as long as the subsequence, and a subsequence.
  std::vector<evaluators::WordId> first, second;
  for (const char c : answer) first.push_back(static_cast<unsigned char>(c));
  for (const char c : reference) second.push_back(static_cast<unsigned char>(c));
  evaluators::Lcs lcs(256);
  lcs.set_b(second);
  size_t n = 0, last_i = first.size(), last_j = second.size();
  lcs.walk(first, [&](size_t i, size_t j) {
    EVALRUN_CHECK(i < last_i && j < last_j && first[i] == second[j]);
    last_i = i;
    last_j = j;
    ++n;
  });
  EVALRUN_CHECK(n == lcs.length(first));
}

void bleu(std::string_view bytes) {
  const size_t middle = std::min(bytes.find('\xff'), bytes.size());
  const std::string_view answer = bytes.substr(0, middle);
  const std::string_view reference = bytes.substr(std::min(middle + 1, bytes.size()));
  const double score = evaluators::sentence_bleu(answer, reference).bleu;
  EVALRUN_CHECK(score >= 0 && score <= 100 + 1e-9, "{}", score);
  const evaluators::BleuScore same = evaluators::sentence_bleu(answer, answer);
  EVALRUN_CHECK(same.n_answer == 0 || std::abs(same.bleu - 100) < 1e-9, "{}", same.bleu);
  std::string word;
  for (const char c : bytes)
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) word += c;
  EVALRUN_CHECK(evaluators::porter_stem(word).size() <= word.size() + 1);
}

void judge(std::string_view bytes) {
  namespace ev = evaluators;
  const std::optional<double> grade = ev::parse_grade(bytes);
  EVALRUN_CHECK(!grade || (*grade >= 1 && *grade <= 10));
  const ev::PairVerdict verdict = ev::parse_pair_verdict(bytes);
  EVALRUN_CHECK(ev::combine_orders(verdict, ev::PairVerdict::kNone) == ev::PairVerdict::kNone);
  std::string problem;
  const std::string reply = ev::parse_chat_completion(bytes, &problem);
  EVALRUN_CHECK(reply.empty() || problem.empty());
  try {
    ev::JudgePrompts::parse(bytes, "", "bytes");
  } catch (const base::Error& error) {
    EVALRUN_CHECK(!error.message().empty());
  }
}

void completion(std::string_view bytes) {
  namespace ev = evaluators;
  for (const char* language : {"python", "cpp", "java", "js", "go", "rust"}) {
    datasets::CodeProblem problem;
    problem.language = language;
    problem.entry_point = "f";
    problem.prompt = "def f(x):\n";
    for (const auto convention : {ev::CodeConvention::kEvalrun, ev::CodeConvention::kCodegeex,
                                  ev::CodeConvention::kBigcode}) {
      const std::string cut = ev::cut_completion(problem, bytes, convention);
      EVALRUN_CHECK(cut.size() <= bytes.size() + 2);  // Java's class may be closed
      for (const bool chat : {false, true}) ev::read_answer(problem, chat, bytes, convention);
    }
  }
}

void claims(std::string_view bytes) {
  constexpr std::string_view kHeader =
      "paper,place,model,dataset,category,method,config,metric,value,sd,unit,hardware,note\n";
  for (const std::string& text : {std::string(bytes), std::string(kHeader) + std::string(bytes)})
    try {
      const reports::Claims table = reports::parse_claims(text, "bytes");
      const reports::Audit audit = reports::audit_claims(table);
      for (const reports::Finding& finding : audit.findings)
        EVALRUN_CHECK(!finding.flagged.empty() && !finding.text.empty());
      using reports::Format;
      for (const Format f : {Format::kText, Format::kMarkdown, Format::kCsv, Format::kJson,
                             Format::kLatex, Format::kHtml})
        EVALRUN_CHECK(!reports::rendered(audit, f).empty());
    } catch (const base::Error& error) {
      EVALRUN_CHECK(!error.message().empty());
    }
}

const std::vector<Target>& targets() {
  using namespace std::string_view_literals;
  static const std::vector<Target> kTargets = {
      {"jsonl",
       &jsonl,
       {"{\"id\": 1, \"prompt\": \"a\", \"reference\": \"b\", \"chat\": false, \"meta\": {}}\n"
        "{\"id\": \"x\", \"turns\": [\"a\", \"b\\u00e9\"], \"category\": \"c\"}\r\n"sv,
        "\xEF\xBB\xBF{\"id\": -1, \"messages\": [{\"role\": \"user\", \"content\": \"\\ud83d\\ude00\"}]}"sv,
        "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"sv}},
      {"generations",
       &generations,
       {"{\"id\": \"set/0\", \"text\": \"a\"}\n{\"id\": 0, \"sample\": 1, \"text\": [\"\"]}\n"sv,
        "{\"id\": \"1\", \"text\": [\"a\", \"b\"], \"model\": {\"n\": [1, 2.5e3, null]}}"sv}},
      {"gsm8k",
       &gsm8k,
       {"She earns $1,000.00. 16 - 3 = <<16-3=13>>13\n#### -13."sv,
        "It is \xe2\x88\x92"
        "5.0, or .5%, not 1,2 \\boxed{72}"sv}},
      {"rouge",
       &rouge,
       {"The cat sat.\nThe dog ran. \xff"
        "a cat\nsat. nationally relational \xe2\x84\xaa\xc4\xb0"sv,
        "a b a b . b a\nc\xff"
        "b a b\na b c a ."sv,
        " . .\xff\xe3\x80\x80"sv}},
      {"bleu",
       &bleu,
       {"It costs $1,000.50, or 5-6% &amp;lt; more.\xff"
        "well-\nknown <skipped> \xc2\xa0 (a/b)"sv}},
      {"judge",
       &judge,
       {"Good. Rating: [[7.5]], not [3] or [[A]]"sv,
        "{\"choices\": [{\"message\": {\"role\": \"assistant\", \"content\": \"[[B]]\"}}]}"sv,
        "{\"name\": \"single-v1\", \"type\": \"single\", \"system_prompt\": \"s\", "
        "\"prompt_template\": \"{question} {answer}\", \"description\": \"\", \"category\": "
        "\"general\", \"output_format\": \"[[rating]]\"}"sv}},
      {"completion",
       &completion,
       {"    return x\n\n\ndef g(y):\n    print('}')\n"sv,
        "Here:\n```python\ndef f(x):\n    return x\n```\nand ```\n1"sv,
        "  if (x) { return 1; }\n}\npublic static void main(String[] a) { }\n}"sv,
        "\treturn x\n}\n// more\nfunc main() {\n}\nfn f<'a>(x: &'a str) -> i32 { 1 }"sv}},
      {"claims",
       &claims,
       {"p,Table 1,m,d,,sps,gamma=5,speedup,3.6,0.1,ratio,\"A100, x\",doubt=a; b\n"
        "p,Table 1,m,d,,sps,gamma=5,tau_with_bonus,3.5,,,\"A100, x\",\r\n"
        "p,Table 1,m,d,,sps,gamma=5,alpha_share,77.9,,,\"A100, x\",\r\n"sv,
        "p,Table 1,m-7b,d,,x,a=1,speedup,2,,,,\np,Table 1,m-7b,d,,x,a=2,speedup,3e0,,,,\n"
        "p,Section 1,m-7b/13b,d,,x,stat=max,speedup,4,,,,\n"
        "p,Section 1,all,d,,x,versus=a_2,speedup_over_method,1.5,,,,\n"sv,
        "p,Table 1,,a,,,,train_samples,1,,,,\np,Table 1,,b,,,,train_samples,2,,,,\n"
        "p,Table 1,,c,,,,train_samples,3,,,,\np,A,,d,,,,train_samples,70,,,,\n"sv}},
      {"chat_template",
       &chat_template,
       {"{%- for m in messages %}\n  {%- if m.role == 'assistant' and '</think>' in m.content "
        "%}\n{%- set c = m.content.split('</think>')[-1].lstrip('\n') %}{%- else %}{%- set c ="
        " m['content'] | trim %}{%- endif %}\n{{- '<|' + m.role + '|>\\n' ~ c }}{{ loop.index0"
        " }}{{ loop.previtem is defined }}\n{%- endfor %}{% if add_generation_prompt %}{{ bos_"
        "token }}{% endif %}"sv,
        "{% set ns = namespace(a=1, l=[]) %}{% macro f(x, y='d') %}{{ x }}{{ y }}{{ varargs }}"
        "{{ kwargs }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{{ caller() if caller }}{% endmacr"
        "o %}{{ f(3, 1, 2, z=n) }}{% call(q) f(0) %}{{ q }}{% endcall %}{% for k, v in {'b': 1"
        ", 'a': [2.5, none]}.items() if v %}{% set ns.a = ns.a + 1 %}{% continue %}{% else %}x"
        "{% endfor %}{{ ns.a }}"sv,
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join"
        "(', ') }}{{ messages[::-1][1:3] | tojson(indent=2) }}{{ ['b', 'A'] | sort | unique | "
        "list }}{{ {'a': 1} | dictsort }}{{ 'a\\nb' | indent(2, true) | replace('a', 'b', 1) |"
        " title }}{{ '12' | int // 5 ** 2 % -3 }}{{ f | round(1) }}"sv,
        "{# c -#}{% raw %}{{ x }}{% endraw %}{% filter upper %}a{% endfilter %}{% set t %}b{% "
        "endset %}{% with a = 1 %}{{ a }}{% endwith %}{{ '{:>5}|{x!r}'.format('a', x=[1]) }}{{"
        " '%05.1f|%s' % (f, 'x') }}{{ 'abcabc'.rfind('c') }}{{ ' a b '.rsplit(none, 1) }}{{ st"
        "rftime_now('%d %b %Y') }}{{ range(3) | batch(2, 'x') | list }}{{ 1 if n is divisibleb"
        "y 7 else raise_exception('no') }}{{ \"it's\\u00e9\\x41\" }}"sv}},
  };
  return kTargets;
}

}  // namespace evalrun::fuzz
