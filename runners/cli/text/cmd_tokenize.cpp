// evalrun tokenize: text to token ids, line by line. Loads the tokenizer only, not the weights.
#include <memory>

#include "engine/tokenizer/tokenizer.h"
#include "runners/cli/cli.h"
#include "runners/cli/jsonl.h"
#include "runners/cli/load_tokenizer.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

struct TokenizeArguments {
  ModelOptions model;
  std::string in;
  bool no_special = false;
};

void run_tokenize(const TokenizeArguments& options) {
  const auto tokenizer = load_tokenizer(options.model.path());
  engine::EncodeOptions encode;
  encode.parse_special = !options.no_special;
  JsonlReader reader(options.in);
  while (const auto object = reader.next()) {
    nlohmann::ordered_json line;
    line["ids"] = tokenizer->encode(reader.text(*object, "text"), encode);
    print_json(line);
  }
}

}  // namespace

void add_tokenize_command(CLI::App& app, Context&) {
  auto* command = app.add_subcommand("tokenize", "Text to token ids (JSON Lines)");
  auto options = std::make_shared<TokenizeArguments>();
  options->model.add_model(*command);
  command
      ->add_option("--in", options->in, "Texts, one object {\"text\"} per line; - = standard input")
      ->required();
  command->add_flag("--no-special", options->no_special,
                    "Treat special tokens written in the text as plain text");
  command->footer(
      "One line {\"ids\": [...]} per input line, in order. No begin token is added; other fields "
      "of\n"
      "the input are ignored.\n\nExamples:\n"
      "  echo '{\"text\": \"Hello world\"}' | evalrun tokenize --in -\n"
      "  evalrun tokenize -m model.gguf --in texts.jsonl > ids.jsonl\n"
      "  evalrun tokenize --in chat.jsonl --no-special");
  command->callback([options] { run_tokenize(*options); });
}

}  // namespace evalrun::cli
