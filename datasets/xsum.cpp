// XSum (Narayan et al. 2018): a BBC news article, to be summarised in one sentence. The wording of
// the request is BiTA's (Lin et al. 2024). The official file is Parquet; what is read is its JSON
// Lines form with the fields id, document, summary.
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

DatasetEntry xsum() {
  DatasetInfo info;
  info.name = info.family = "xsum";
  info.summary = "one-sentence summaries of news articles (test split)";
  info.source = "https://huggingface.co/datasets/EdinburghNLP/xsum";
  info.licence = "not stated (BBC news text)";
  info.official_count = 11334;
  info.default_max_new = 256;
  info.files = {"xsum/test.jsonl"};
  const auto row = [](const JsonLine&, base::ObjectReader& reader) {
    Prompt prompt;
    prompt.id = "xsum/" + reader.required<std::string>("id");
    prompt.turns = {
        fmt::format("Document: {}\nBased on the previous text, provide a brief single summary:",
                    reader.required<std::string>("document"))};
    prompt.reference = reader.required<std::string>("summary");
    return prompt;
  };
  return {info,
          file_loader(info, [row](const DatasetSpec&) { return row; }, {"xsum/test_sample.jsonl"})};
}

}  // namespace evalrun::datasets
