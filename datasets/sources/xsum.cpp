// XSum (Narayan et al. 2018): a BBC news article, to be summarised in one sentence. The official
// file is Parquet; what is read is its JSON Lines form (scripts/convert-data) with the fields id,
// document, summary.
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

namespace {

constexpr const char* kBitaRequest =
    "\nBased on the previous text, provide a brief single summary:";
constexpr const char* kSpaceRequest =
    "\n Based on the previous text, provide a brief single summary";

// BiTA (Lin et al. 2024): as its code has it. SPACE (Yi et al. 2024): as the paper prints it.
struct XsumOptions {
  std::string request = kBitaRequest;
};

base::Options<XsumOptions> xsum_options() {
  return base::Options<XsumOptions>{}.choice("prompt", &XsumOptions::request,
                                             {{"bita", kBitaRequest}, {"space", kSpaceRequest}},
                                             "wording of the request");
}

RowReader xsum_rows(const DatasetSpec& spec) {
  const std::string request = xsum_options().of(spec.options).request;
  return [request](const JsonLine&, base::ObjectReader& reader) {
    Prompt prompt;
    prompt.id = "xsum/" + reader.required<std::string>("id");
    prompt.group = "/" + prompt.id;  // of all its forms
    prompt.turns = {
        fmt::format("Document: {}{}", reader.required<std::string>("document"), request)};
    prompt.reference = reader.required<std::string>("summary");
    return prompt;
  };
}

}  // namespace

DatasetEntry xsum() {
  DatasetInfo info;
  info.name = info.family = "xsum";
  info.summary = "one-sentence summaries of news articles (test split)";
  info.source = "https://huggingface.co/datasets/EdinburghNLP/xsum";
  info.licence = "not stated (BBC news text)";
  info.official_count = 11334;
  info.default_max_new = 256;
  info.options = xsum_options().infos();
  info.evaluators = {"rougeL@pltrdy-1.0.1", "rougeL@rouge_score-0.1.2", "rouge1@rouge_score-0.1.2",
                     "rouge2@rouge_score-0.1.2", "rougeLsum@rouge_score-0.1.2"};
  info.files = {"xsum/test.jsonl"};
  info.alternatives = {"xsum/test_sample.jsonl"};
  return {info, file_loader(info, xsum_rows)};
}

}  // namespace evalrun::datasets
