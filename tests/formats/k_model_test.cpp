// Models whose matrices are K-quants, each as its file has it: what is loaded, and forwards that
// are the reference's, to the bit, on every path, whatever the company of a row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/made_up_places.h"
#include "tests/engine/random_models.h"
#include "tests/formats/weight_models.h"
#include "tests/scoped_variable.h"

namespace evalrun::engine::testing {
namespace {

LoadOptions with_auto() {
  LoadOptions options;
  options.format = WeightFormat::kAuto;
  options.need_tokenizer = false;
  return options;
}

TEST(KModel, EveryMatrixIsAsItsFileHasIt) {
  const TempFolder folder;
  for (const GgufModel& m : {medium_k_model(), mixed_k_model()}) {
    const std::string path = write_gguf(folder, "m.gguf", m);
    const GgufFile file(path);
    const auto model = load_model(path, with_auto());
    EXPECT_EQ(model->format(), WeightFormat::kStored);
    EXPECT_EQ(&model->head() == &model->embedding(), m.tied);
    for (const auto& [name, w] : matrices_of(*model)) {
      const GgufTensor& t = file.tensors().at(name);
      ASSERT_EQ(w->storage(), WeightMatrix::storage_of(t.dtype)) << name;
      const auto size = static_cast<size_t>(bytes_of(t.dtype, w->in()));
      std::vector<float> want(static_cast<size_t>(w->in())), got(want.size());
      for (int o = 0; o < w->out(); ++o) {
        w->copy_row(o, got);
        dequantize(t.dtype, t.bytes.subspan(static_cast<size_t>(o) * size, size), want);
        if (t.dtype != DType::kF16) {
          ASSERT_TRUE(same_bits(got, want)) << name << " row " << o;
        }
      }
      // Rows that fill their panels take at most 5 % more than in the file.
      if (k_bits(t.dtype) != 0 && w->out() % 16 == 0) {
        EXPECT_LE(static_cast<double>(w->size()), 1.05 * static_cast<double>(t.bytes.size()))
            << name;
      }
    }
  }
}

class KModelOnEveryPath : public ::testing::TestWithParam<std::string> {};

TEST_P(KModelOnEveryPath, HasTheReferencesBitsAtAnyThreadCount) {
  const TempFolder folder;
  for (const GgufModel& m : {medium_k_model(), mixed_k_model()}) {
    const auto model = load_model(write_gguf(folder, "m.gguf", m), with_auto());
    const auto prompt = random_tokens(30, m.vocabulary, 11);
    const auto tree = random_tree(13, m.vocabulary, 5);
    auto reference = open(model, "reference", 1, 64);
    reference->prefill(prompt);
    const ForwardResult want = reference->forward({.rows = tree});
    for (const int threads : {1, 3}) {
      auto session = open(model, GetParam(), threads, 64);
      session->prefill(prompt);
      const ForwardResult got = session->forward({.rows = tree});
      for (int i = 0; i < 13; ++i) {
        ASSERT_TRUE(same_bits(got.logits_row(i), want.logits_row(i))) << i << ", " << threads;
        ASSERT_TRUE(same_bits(got.hidden_row(i), want.hidden_row(i))) << i << ", " << threads;
      }
    }
  }
}

TEST(KModel, HasThePlainBitsOnTwoNodes) {
  const TempFolder folder;
  const tests::ScopedVariable numa("EVALRUN_NUMA", "copy");
  for (const GgufModel& m : {medium_k_model(), mixed_k_model()}) {
    const auto model = load_model(write_gguf(folder, "m.gguf", m), with_auto());
    const auto prompt = random_tokens(30, m.vocabulary, 11);
    const auto tree = random_tree(6, m.vocabulary, 5);
    auto plain = open(model, "", 2, 64);
    plain->prefill(prompt);
    const ForwardResult want = plain->forward({.rows = tree});
    for (const int threads : {2, 5}) {
      const cpu::Places places = two_nodes(threads);
      auto session = open_at(places, model);
      EXPECT_EQ(session->weight_placement().how, "copy");
      session->prefill(prompt);
      const ForwardResult got = session->forward({.rows = tree});
      for (int i = 0; i < 6; ++i)
        ASSERT_TRUE(same_bits(got.logits_row(i), want.logits_row(i))) << i << ", " << threads;
    }
  }
}

TEST_P(KModelOnEveryPath, RowAloneEqualsNodeOfAnyTree) {
  const TempFolder folder;
  const GgufModel m = medium_k_model(3);
  const auto model = load_model(write_gguf(folder, "m.gguf", m), with_auto());
  const auto prompt = random_tokens(20, m.vocabulary, 7);
  auto session = open(model, GetParam(), 2, 64), plain = open(model, GetParam(), 1, 64);
  session->prefill(prompt), plain->prefill(prompt);
  for (const int rows : {2, 3, 4, 5, 8, 9, 17, 33}) {
    const auto tree = random_tree(rows, m.vocabulary, static_cast<uint64_t>(rows), 3);
    const ForwardResult r = session->forward({.rows = tree});
    size_t compared = 0;
    ASSERT_TRUE(path_has_bits_of_plain(r, tree, rows - 1, *plain, compared)) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KModelOnEveryPath, ::testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return as_test_name(isa.param); });

// The weights are the file's, so only inputs and cache are rounded.
TEST(KModel, LogitsAreNearThoseOfTheSameWeightsInFloat32) {
  const TempFolder folder;
  const std::string path = write_gguf(folder, "m.gguf", medium_k_model(4));
  LoadOptions options = with_auto();
  const auto stored = load_model(path, options);
  options.format = WeightFormat::kF32;
  const auto exact = load_model(path, options);
  const auto tokens = random_tokens(24, 101, 3);
  std::vector<Row> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = {.token = tokens[i], .parent = static_cast<int32_t>(i) - 1};
  auto got_session = open(stored, "", 1, 64), want_session = open(exact, "", 1, 64);
  const ForwardResult got = got_session->forward({.rows = rows});
  const ForwardResult want = want_session->forward({.rows = rows});
  for (int i = 0; i < static_cast<int>(rows.size()); ++i)
    EXPECT_LT(relative_error(got.logits_row(i), want.logits_row(i)), 0.06) << i;
}

TEST(KModel, RowsThatAreNoBlocksAreNamed) {
  const TempFolder folder;
  GgufBuilder b;
  b.text("general.architecture", "qwen3");
  b.tensor("token_embd.weight", {288, 2}, id_in_gguf(DType::kQ4_K), 0).data(std::string(324, '\1'));
  const std::string path = folder.write("m.gguf", b.bytes());
  expect_data_error([&] { (void)load_model(path, with_auto()); },
                    {path, "token_embd.weight", "288", "256", "Q4_K"});
}

TEST(KModel, CutBlocksAreNamed) {
  const TempFolder folder;
  const std::string path = write_gguf(folder, "m.gguf", medium_k_model());
  const auto whole = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, whole - 150);
  expect_data_error([&] { (void)load_model(path, with_auto()); }, {path, "blk.1.ffn_down.weight"});
}

TEST(KModel, ScalesThatAreNoNumbersAreNamed) {
  const TempFolder folder;
  GgufModel m = medium_k_model();
  m.damaged = "blk.1.ffn_down.weight";
  m.damage = std::string(208, '\x11') + std::string("\x00\x7E", 2);
  const std::string path = write_gguf(folder, "m.gguf", m);
  expect_data_error([&] { (void)load_model(path, with_auto()); },
                    {path, "blk.1.ffn_down.weight", "[0, 0]", "not a finite number"});
}

}  // namespace
}  // namespace evalrun::engine::testing
