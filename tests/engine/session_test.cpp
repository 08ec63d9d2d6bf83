#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

using base::InternalError;
using ::testing::HasSubstr;

std::unique_ptr<Session> small_session(int max_tokens = 64, int sequences = 1) {
  return open(make_random_model(small_config(), 1), "", 1, max_tokens, sequences);
}

TEST(Session, RefusesACacheOrBitsItDoesNotHave) {
  const auto model = make_random_model(small_config(), 1);
  SessionOptions o;
  o.kv_dtype = "int2";
  EXPECT_THROW(Session::create(model, o), base::Error);
  o.kv_dtype = "", o.one_isa = true, o.isa = "portable";  // the same bits as everywhere
  EXPECT_THROW(Session::create(model, o), base::Error);
  o.one_isa = false;
  EXPECT_EQ(Session::create(model, o)->options().kv_dtype, "f32");
}

TEST(Session, CacheOfBytesIsNearlyAQuarter) {
  const auto model = make_random_model(small_config(), 1);
  auto floats = open(model, Path{"", WeightFormat::kF32, "f32"}, 1, 512);
  EXPECT_EQ(floats->kv_bytes(), 512u * 2 * 2 * 32 * 4);  // tokens, layers, k and v, values, size
  for (const char* kv : {"int8", "fp8"}) {
    auto bytes = open(model, Path{"", WeightFormat::kF32, kv}, 1, 512);
    EXPECT_EQ(bytes->kv_bytes(), 512u * 2 * 2 * (32 + 2 * 4)) << kv;  // a scale per head
  }
}

TEST(Session, CacheOfCodesIsNearlyAnEighth) {
  ModelConfig c = small_config();
  c.head_dim = 64;
  auto codes = open(make_random_model(c, 1), Path{"", WeightFormat::kF32, "int4"}, 1, 512);
  // Tokens, layers, k and v, heads: 32 bytes, and scale and offset.
  EXPECT_EQ(codes->kv_bytes(), 512u * 2 * 2 * 2 * (32 + 4));
}

TEST(Session, RefusesPathsThatAreNotPaths) {
  auto s = small_session();
  s->prefill(random_tokens(5, 101, 1));
  const int zero[] = {0};
  EXPECT_THROW(s->commit(zero), InternalError);  // no forward yet
  const std::vector<Row> rows = {{.token = 1},
                                 {.token = 2, .parent = 0},
                                 {.token = 3, .parent = 0},
                                 {.token = 4, .parent = 1}};
  (void)s->forward({.rows = rows});
  for (const std::vector<int>& bad :
       {std::vector<int>{1}, {0, 3}, {0, 1, 2}, {0, 2, 3}, {0, 0}, {4}, {-1}})
    EXPECT_THROW(s->commit(bad), InternalError);
  const int good[] = {0, 1, 3};
  s->commit(good);
  EXPECT_EQ(s->length(), 8);
  EXPECT_THROW(s->commit(zero), InternalError);  // once per forward
}

TEST(Session, ForwardCommitsNothing) {
  auto s = small_session();
  s->prefill(random_tokens(20, 101, 1));
  const auto before = decode_alone(*s, {5});
  for (int i = 0; i < 5; ++i)
    (void)s->forward({.rows = random_tree(10, 101, static_cast<uint64_t>(i))});
  EXPECT_EQ(s->length(), 20);
  EXPECT_TRUE(same_bits(before, decode_alone(*s, {5})));
}

TEST(Session, RewindForgetsAndForkCopies) {
  auto s = small_session(64, 2);
  const auto text = random_tokens(40, 101, 1);
  s->prefill(text, 0);
  s->fork(0, 1);
  EXPECT_EQ(s->length(1), 40);
  const Row row{.token = 9, .sequence = 1};
  const auto forked = s->forward({.rows = {&row, 1}});
  const std::vector<float> logits(forked.logits_row(0).begin(), forked.logits_row(0).end());
  EXPECT_TRUE(same_bits(logits, decode_alone(*s, {9})));
  s->rewind(17, 0);
  s->prefill(std::span(text).subspan(17), 0);
  EXPECT_TRUE(same_bits(logits, decode_alone(*s, {9})));
  EXPECT_THROW(s->rewind(41, 0), InternalError);
}

TEST(Session, SaysWhatDoesNotFit) {
  auto s = small_session(32);
  try {
    s->prefill(random_tokens(33, 101, 1));
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("32"));
  }
  s->prefill(random_tokens(32, 101, 1));  // exactly full
  const Row row{.token = 1};
  EXPECT_THROW((void)s->forward({.rows = {&row, 1}}), base::Error);
}

TEST(Session, UnknownDeviceAndIsaNameWhatExists) {
  const auto model = make_random_model(small_config(), 1);
  SessionOptions o;
  o.isa = "avx51";
  try {
    (void)Session::create(model, o);
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("reference"));
  }
  o.isa.clear();
  o.device = "cuda:77";  // nobody's, whatever the machine
  try {
    (void)Session::create(model, o);
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("devices here: cpu"));
  }
}

TEST(Session, TooLargeACacheIsRefusedBeforeAllocating) {
  SessionOptions o;
  o.max_tokens = 2'000'000'000;
  ModelConfig c = small_config();
  c.n_layers = 64;
  try {
    (void)Session::create(make_random_model(c, 1), o);
    FAIL();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("B are free"));
  }
}

// Keys and values of a token: a byte each, or half of one, and four bytes per head.
TEST(Session, TheNeedOfACacheOfBytesIsCountedAsItIs) {
  SessionOptions o;
  o.max_tokens = 2'000'000'000;
  ModelConfig c = small_config();
  c.n_layers = 64;
  const auto model = make_random_model(c, 1);
  const auto needed = [&](const char* kv_dtype) -> std::string {
    o.kv_dtype = kv_dtype;
    try {
      (void)Session::create(model, o);
    } catch (const base::Error& e) {
      const std::string text = e.what();
      const size_t at = text.find(" need ");
      return text.substr(at + 6, text.find(',', at) - at - 6);
    }
    return "";
  };
  const double floats = 2.0 * c.n_layers * c.kv_dim(), rope = 4.0 * c.head_dim;
  EXPECT_EQ(needed("f32"), base::format_bytes(o.max_tokens * (4 * floats + rope)));
  for (const char* kv : {"int8", "fp8"})
    EXPECT_EQ(needed(kv),
              base::format_bytes(o.max_tokens * ((1 + 4.0 / c.head_dim) * floats + rope)))
        << kv;
  EXPECT_EQ(needed("int4"),
            base::format_bytes(o.max_tokens * ((0.5 + 4.0 / c.head_dim) * floats + rope)));
}

TEST(Session, SeveralModelsAtOnceDoNotDisturbEachOther) {
  const auto models = feature_models();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<float>> alone;
  for (const auto& m : models) {
    sessions.push_back(open(m.model, "", 2));
    sessions.back()->prefill(random_tokens(30, 101, 4));
    alone.push_back(decode_alone(*sessions.back(), {8}));
  }
  for (int round = 0; round < 3; ++round)
    for (size_t i = 0; i < sessions.size(); ++i)
      EXPECT_TRUE(same_bits(decode_alone(*sessions[i], {8}), alone[i]));
}

}  // namespace
}  // namespace evalrun::engine::testing
