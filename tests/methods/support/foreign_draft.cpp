#include "tests/methods/support/foreign_draft.h"

namespace evalrun::tests {
namespace {

std::string letters(int number) {
  constexpr int kLetters = 20;
  const std::string last(1, static_cast<char>('a' + number % kLetters));
  return number < kLetters ? last : letters(number / kLetters) + last;
}

// Rows of the target's matrix in the order of the draft's tokens.
std::shared_ptr<const engine::WeightMatrix> rows_of(const engine::WeightMatrix& matrix,
                                                    const std::vector<int>& rows) {
  auto chosen = std::make_shared<engine::WeightMatrix>(
      engine::WeightMatrix::storage_for_values(matrix.storage()), static_cast<int>(rows.size()),
      matrix.in());
  std::vector<float> values(static_cast<size_t>(matrix.in()));
  for (size_t i = 0; i < rows.size(); ++i) {
    matrix.copy_row(rows[i], values);
    chosen->set_row(static_cast<int>(i), values);
  }
  return chosen;
}

}  // namespace

std::shared_ptr<const engine::Model> with_tokenizer(
    const engine::Model& model, std::shared_ptr<const engine::Tokenizer> tokenizer) {
  engine::ModelParts parts = model.parts();
  parts.tokenizer = std::move(tokenizer);
  return engine::Model::create(std::move(parts));
}

std::vector<std::string> toy_texts(int size) {
  std::vector<std::string> texts;
  for (int i = 0; i < size; ++i) texts.push_back((i % 3 == 2 ? " " : "") + letters(i));
  return texts;
}

methods::MethodBuildContext with_foreign_draft(const methods::MethodBuildContext& context) {
  const int size = context.target->config().vocab_size;
  const std::vector<std::string> texts = toy_texts(size);
  std::vector<std::string> draft_texts = {"zz"};
  std::vector<int> rows = {0};
  for (int i = size; i-- > 0;) {
    const std::string& text = texts[static_cast<size_t>(i)];
    draft_texts.push_back(i % 5 == 4 ? text + "z" : text);
    rows.push_back(i);
  }
  engine::ModelParts draft = context.target->first_layers(1)->parts();
  draft.config.vocab_size = size + 1;
  draft.config.name = "foreign draft";
  draft.embedding = rows_of(context.target->embedding(), rows);
  draft.head = context.target->shared_head() == context.target->shared_embedding()
                   ? draft.embedding
                   : rows_of(context.target->head(), rows);
  draft.tokenizer = std::make_shared<const LongestTokens>(std::move(draft_texts));
  methods::MethodBuildContext foreign = context;
  foreign.target = with_tokenizer(*context.target, std::make_shared<const LongestTokens>(texts));
  foreign.draft = engine::Model::create(std::move(draft));
  return foreign;
}

bool wants_foreign_draft(const methods::MethodSpec& spec) {
  return spec.info->name == "sps" && spec.params.text("vocab") != "same";
}

}  // namespace evalrun::tests
