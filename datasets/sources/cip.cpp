// CIP (chatbot_instruction_prompts): single instructions, used for speed only, so the stored
// response is no reference. Two sets of one form: the real test split, and a stand-in for places
// where it cannot be had. Figures of the stand-in are not CIP figures, which is why it has a name
// of its own.
#include "datasets/json_lines.h"
#include "datasets/sets.h"

namespace evalrun::datasets {

namespace {

ReaderForSpec cip_rows(const std::string& name) {
  const RowReader row = [name](const JsonLine& at, base::ObjectReader& reader) {
    Prompt prompt;
    prompt.id = fmt::format("{}/{}", name, at.row);
    prompt.turns = {reader.required<std::string>("prompt")};
    return prompt;
  };
  return [row](const DatasetSpec&) { return row; };
}

}  // namespace

DatasetEntry cip() {
  DatasetInfo info;
  info.name = info.family = "cip";
  info.summary = "chatbot instruction prompts (test split), speed only";
  info.source = "https://huggingface.co/datasets/alespalla/chatbot_instruction_prompts";
  info.licence = "Apache-2.0";
  info.official_count = 64511;
  info.default_max_new = 512;
  info.files = {"cip/test.jsonl"};
  info.alternatives = {"cip/test.json"};
  return {info, file_loader(info, cip_rows(info.name))};
}

DatasetEntry cip_standin() {
  DatasetInfo info;
  info.name = info.family = "cip_standin";
  info.summary = "stand-in for CIP from two of its three sources; not comparable with CIP";
  info.source = "alpaca and instruct-human-assistant-prompt, see the data manifest";
  info.licence = "CC BY-NC 4.0 (alpaca part); not stated (the rest)";
  info.default_max_new = 512;
  info.files = {"cip_standin/test_standin.jsonl"};
  return {info, file_loader(info, cip_rows(info.name))};
}

}  // namespace evalrun::datasets
