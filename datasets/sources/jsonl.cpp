// `jsonl:FILE`: the user's own prompts, one JSON object per line, or an array of them (gzip
// allowed).
//
//   id         required, string or integer, unique in the file
//   prompt     a string, one turn
//   turns      a list of strings
//   messages   [{"role":"user","content":"..."}, ...]: user messages only, since later turns follow
//              the model's own answers
//              (exactly one of prompt, turns, messages)
//   category, language, reference       optional strings
//   group      optional string: prompts of one group belong together (Prompt::group)
//   stop       optional list of strings, each of which ends an answer
//   chat       optional, default true; false = raw completion without a chat template, of one turn
//   meta       optional, anything; ignored
//
// Other keys are errors: a misspelt "reference" must not pass for a prompt without one.
#include <filesystem>

#include "datasets/json_lines.h"
#include "datasets/sets.h"
#include "datasets/spec.h"

namespace evalrun::datasets {

namespace {

// Without one, the line's number: such prompts are told apart by their place in the file.
std::string read_id(const JsonLine& line, base::ObjectReader& reader) {
  const nlohmann::json* id = reader.raw("id");
  if (id == nullptr) return line.place();
  if (id->is_number_integer()) return id->dump();
  const auto text = reader.required<std::string>("id");
  if (text.empty()) reader.fail("id", "is empty");
  return text;
}

std::vector<std::string> read_messages(base::ObjectReader& reader, const nlohmann::json& messages) {
  if (!messages.is_array()) reader.fail("messages", "must be a list");
  std::vector<std::string> turns;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string name = fmt::format("messages[{}]", i);
    if (!messages[i].is_object()) reader.fail(name, "must be an object with role and content");
    const auto role = messages[i].find("role");
    const auto content = messages[i].find("content");
    if (role == messages[i].end() || *role != "user")
      reader.fail(name + ".role", "must be \"user\"",
                  "leave answers out: later turns follow the model's own");
    if (content == messages[i].end() || !content->is_string())
      reader.fail(name + ".content", "must be a string");
    turns.push_back(content->get<std::string>());
  }
  return turns;
}

std::vector<std::string> read_turns(base::ObjectReader& reader) {
  const int forms = reader.has("prompt") + reader.has("turns") + reader.has("messages");
  if (forms != 1)
    reader.fail("prompt", forms == 0 ? "is missing" : "is given in more than one way",
                "give exactly one of prompt, turns, messages");
  if (reader.has("prompt")) return {reader.required<std::string>("prompt")};
  if (reader.has("turns")) return reader.required<std::vector<std::string>>("turns");
  return read_messages(reader, *reader.raw("messages"));
}

Prompt read_prompt(const JsonLine& line, base::ObjectReader& reader) {
  Prompt prompt;
  prompt.id = read_id(line, reader);
  prompt.turns = read_turns(reader);
  prompt.category = reader.optional<std::string>("category", "");
  prompt.language = reader.optional<std::string>("language", "");
  prompt.group = reader.optional<std::string>("group", "");
  const nlohmann::json* reference = reader.raw("reference");
  if (reference != nullptr && !reference->is_null())
    prompt.reference = reader.required<std::string>("reference");
  prompt.chat = reader.optional<bool>("chat", true);
  if (!prompt.chat && prompt.turns.size() != 1)
    reader.fail("chat", "is false, but there are several turns", "a raw completion has one turn");
  prompt.stop.strings = reader.optional<std::vector<std::string>>("stop", {});
  for (const std::string& text : prompt.stop.strings)
    if (text.empty()) reader.fail("stop", "holds an empty text", "leave it out");
  reader.raw("meta");
  reader.finish();
  return prompt;
}

}  // namespace

LoadedDataset load_jsonl(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw base::data_error(path, "", "is a folder", "jsonl:FILE reads one file");
  DatasetInfo info;
  // Results are told apart by path as given: two files of one name must not mix.
  info.name = std::string(kJsonlPrefix) + path;
  info.family = "jsonl";
  info.summary = "own prompts";
  info.source = path;
  info.licence = "the file's own";
  info.files = {path};
  PromptList prompts;
  const FileState state = read_rows(path, "", read_prompt, prompts);
  LoadedDataset loaded{info, info.name, prompts.take(), path, ""};
  loaded.verification = verification_text(state, loaded.prompts.size(), 0);
  return loaded;
}

}  // namespace evalrun::datasets
