// GSM8K (Cobbe et al. 2021): grade school word problems. The reference is the whole official
// answer, whose last line is "#### <number>".
//
// shots=0  the bare question, asked as a chat message
// shots=n  the raw prompt of lm-evaluation-harness: n solved problems, then the question. The n are
//          the first of the training split, the same for every question; lm-eval's default draws
//          them anew for each.
//
// GSM-100: the 100 questions Self-Draft (Gao et al. 2025) measures on, Python's
// random.sample(range(1319), 100) after seed(10), as its released code draws them.
#include <algorithm>

#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "datasets/sources/gsm8k_group.h"

namespace evalrun::datasets {

namespace {

constexpr const char* kTrainFile = "gsm8k/train.jsonl";
constexpr int kMostShots = 8;

// clang-format off
constexpr int kGsm100[] = {
    8, 10, 30, 65, 66, 70, 75, 89, 90, 91, 133, 147, 155, 165, 197, 231, 244, 272, 274, 284, 293,
    306, 320, 328, 337, 340, 356, 357, 360, 365, 391, 399, 422, 458, 459, 482, 488, 490, 491, 502,
    511, 537, 546, 562, 568, 580, 616, 619, 620, 643, 664, 671, 711, 714, 727, 739, 742, 749, 766,
    768, 781, 787, 845, 848, 860, 862, 878, 887, 890, 892, 900, 904, 912, 922, 933, 935, 947, 962,
    983, 988, 1003, 1006, 1017, 1027, 1066, 1068, 1092, 1098, 1115, 1124, 1161, 1170, 1183, 1193,
    1197, 1231, 1235, 1242, 1256, 1264};
// clang-format on

std::string asked_question(const std::string& question) {
  return fmt::format("Question: {}\nAnswer:", question);
}

std::string read_shots(const DatasetInfo& info, const std::string& root, int wanted) {
  const FoundFile file = find_data_file(info, root, {kTrainFile});
  const std::string text = maybe_gunzip(base::read_file(file.path), file.path);
  std::string shots;
  int n = 0;
  for_each_json_record(text, file.path, [&](const JsonLine&, base::ObjectReader& reader) {
    if (n == wanted) return;
    shots += fmt::format("{} {}\n\n", asked_question(reader.required<std::string>("question")),
                         reader.required<std::string>("answer"));
    ++n;
  });
  if (n < wanted)
    throw base::data_error(file.path, "",
                           fmt::format("has {} of the {} examples asked for", n, wanted),
                           "use the complete file, or fewer shots");
  return shots;
}

// `only`: rows of the test file that belong to the set, ascending; empty = all.
RowReader gsm8k_rows(int n_shots, const std::string& shots, std::span<const int> only) {
  return [n_shots, shots, only](const JsonLine& at,
                                base::ObjectReader& reader) -> std::optional<Prompt> {
    if (!only.empty() && !std::binary_search(only.begin(), only.end(), at.row)) return std::nullopt;
    Prompt prompt;
    prompt.id = fmt::format("gsm8k/{}", at.row);
    const auto question = reader.required<std::string>("question");
    prompt.group = gsm8k_group(question);
    prompt.reference = reader.required<std::string>("answer");
    if (prompt.reference->find("#### ") == std::string::npos)
      reader.fail("answer", "has no final line '#### NUMBER'",
                  "use the official file; evaluators compare with that number");
    prompt.turns = {n_shots == 0 ? question : shots + asked_question(question)};
    if (n_shots > 0) {
      prompt.chat = false;
      prompt.stop.strings = {"Question:", "</s>", "<|im_end|>"};
    }
    return prompt;
  };
}

struct Gsm8kOptions {
  int shots = 0;
};

DatasetEntry entry(DatasetInfo info, std::span<const int> only) {
  info.family = "gsm8k";
  info.source = "https://github.com/openai/grade-school-math (grade_school_math/data)";
  info.licence = "MIT";
  info.evaluators = {"gsm8k@evalrun", "gsm8k_strict@lm-eval-3", "gsm8k_flexible@lm-eval-3"};
  const auto options = base::Options<Gsm8kOptions>{}.add(
      "shots", &Gsm8kOptions::shots, {0, kMostShots},
      "solved examples in front, as a raw prompt; 0 = a chat message");
  info.options = options.infos();
  info.files = {"gsm8k/test.jsonl"};
  const auto load = [info, only, options](const std::string& root, const DatasetSpec& spec) {
    const FoundFile file = find_data_file(info, root, info.files);
    const int n_shots = options.of(spec.options).shots;
    const std::string shots = n_shots == 0 ? "" : read_shots(info, root, n_shots);
    return load_one_file(info, spec, file, gsm8k_rows(n_shots, shots, only));
  };
  return {info, load};
}

}  // namespace

DatasetEntry gsm8k() {
  DatasetInfo info;
  info.name = "gsm8k";
  info.summary = "maths word problems with a numeric answer (test split)";
  info.official_count = 1319;
  info.default_max_new = 256;
  return entry(info, {});
}

DatasetEntry gsm_100() {
  DatasetInfo info;
  info.name = "gsm_100";
  info.summary = "Self-Draft's 100 questions of GSM8K";
  info.official_count = static_cast<int>(std::size(kGsm100));
  info.default_max_new = 1024;
  return entry(info, kGsm100);
}

}  // namespace evalrun::datasets
