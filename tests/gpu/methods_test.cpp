// Every registered method on the CUDA device: greedy, the tokens and the cache of plain decoding
// there, bit for bit; sampled, its tokens where drafts are not drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "engine/cuda/runtime/product_path.h"
#include "tests/engine/random_models.h"
#include "tests/methods/support/adapters.h"
#include "tests/methods/support/cheap_draws.h"
#include "tests/methods/support/harness.h"
#include "tests/sample.h"
#include "tests/temp_folder.h"
#ifdef EVALRUN_CUDA_EMULATED
#include "tests/gpu/emulator/include/emulator.h"
#endif

namespace evalrun::tests {
namespace {

using engine::WeightFormat;
using results::TurnRecord;

constexpr int kVocab = 24, kMaxTokens = 192;

engine::SessionOptions on_device(const std::string& kv_dtype = "") {
  engine::SessionOptions options = session_options(kMaxTokens);
  options.device = "cuda", options.kv_dtype = kv_dtype;
  return options;
}

std::unique_ptr<methods::DecodingMethod> build_on_device(
    const Arm& arm, const std::shared_ptr<const engine::Model>& model, int slots = 1,
    const std::string& kv_dtype = "") {
  methods::MethodBuildContext context;
  context.target = model;
  context.slots = slots;
  context.session = on_device(kv_dtype);
  context.draft = model->first_layers(1);
  return arm.build(context);
}
// A target that drafts for itself in fewer bits needs more than the fewest.
bool drafts_by_copy(const Arm& arm) { return arm.name.find("draft=self") != arm.name.npos; }
WeightFormat few_bits(const Arm& arm) {
  return drafts_by_copy(arm) ? WeightFormat::kBf16 : WeightFormat::kQ4;
}
// All but those with a cache that a GPU has not.
std::vector<Arm> arms_of_devices() {
  std::vector<Arm> arms = all_arms();
  std::erase_if(arms,
                [](const Arm& arm) { return arm.name.find("draft_kv=int4") != arm.name.npos; });
  return arms;
}
Arm plain_decoding() {
  for (Arm& arm : all_arms())
    if (arm.name == "ar") return arm;
  return {};
}

Turn turn(Tokens prompt, int max_new) {
  Turn t{std::move(prompt)};
  t.max_new = max_new;
  return t;
}
Tokens periodic(int n) {
  base::Rng rng(11);
  const Tokens piece = random_tokens(rng, 5, kVocab);
  Tokens prompt;
  while (prompt.size() < static_cast<size_t>(n))
    prompt.insert(prompt.end(), piece.begin(), piece.end());
  return prompt;
}
// Prompts that lookup can use. The long one is prefilled by cuBLAS (64 rows); q4 has it always.
std::vector<Turn> turns(WeightFormat format, int max_new = 14) {
  const Turn shorter = turn(periodic(20), max_new), longer = turn(periodic(70), max_new);
  if (engine::testing::kFewCases) return {format == WeightFormat::kQ4 ? longer : shorter};
  base::Rng rng(12);
  return {shorter, longer, turn(random_tokens(rng, 9, kVocab), 64), turn({0}, 64)};
}

// Keys and values of equal texts are equal bits, whatever was drafted on the way.
void same_cache(const engine::Session& a, const engine::Session& b, const engine::ModelConfig& c) {
  const int n = std::min(a.length(), b.length());
  const auto width = static_cast<size_t>(c.kv_dim());
  std::vector<float> k(width), v(width), expected_k(width), expected_v(width);
  for (int layer = 0; layer < c.n_layers; ++layer)
    for (int position = 0; position < n; ++position) {
      a.read_kv(layer, position, 0, k, v);
      b.read_kv(layer, position, 0, expected_k, expected_v);
      ASSERT_EQ(k, expected_k) << "layer " << layer << ", position " << position << " of " << n;
      ASSERT_EQ(v, expected_v) << "layer " << layer << ", position " << position << " of " << n;
    }
}

class OnTheDevice : public ::testing::TestWithParam<Arm> {
 protected:  // with cuBLAS, which other tests of this program leave out (backend_test.cpp)
  void SetUp() override { ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "1", 1), 0); }
  void TearDown() override { ASSERT_EQ(setenv("EVALRUN_CUDA_CUBLAS", "0", 1), 0); }
};

bool by_noise(const Arm& arm) {
  return gives_the_same_tokens(arm, {1, 0, 1, engine::Sampler::kGumbel});
}

std::vector<Arm> arms_of_devices();

// On the emulator a usual run tests every method, but of its arms a third, chosen by the seed; of
// layers by one kernel a sixth.
bool has_its_turn(const Arm& arm, const std::string& test) {
  if (!engine::testing::kFewCases || tests::test_everything()) return true;
  const auto method_of = [](const Arm& a) { return a.name.substr(0, a.name.find(':')); };
  static const std::vector<Arm> all = arms_of_devices();
  size_t n = 0, place = 0;
  for (const Arm& other : all) {
    if (other.name == arm.name) place = n;
    n += method_of(other) == method_of(arm);
  }
  const size_t share =
      engine::cuda::product_path() == engine::cuda::ProductPath::kPersistent ? 6 : 3;
  return tests::in_sample(place, n, (n + share - 1) / share, test + method_of(arm));
}

// Of these one is decoded greedily or sampled, in another run the other way. Every step that a
// method queues is met by both.
bool samples_this_time(const Arm& arm) {
  return by_noise(arm) && tests::in_sample(0, 2, 1, "on the device, " + arm.name);
}

TEST_P(OnTheDevice, GreedyTokensAreThoseOfPlainDecoding) {
  if (!has_its_turn(GetParam(), "alone, ")) return;
  if (engine::testing::kFewCases && !tests::test_everything() && samples_this_time(GetParam()))
    return;
  // Something must be drafted and accepted, or nothing was shown. Half of a two-layer model is too
  // expensive a draft to be used by choice, and random weights are right by chance alone.
  const std::string& name = GetParam().name;
  const bool drafts = name != "ar" && !is_too_dear(GetParam());
  const bool accepts = drafts && name.find('@') == name.npos && !name.starts_with("random");
  std::vector<WeightFormat> all = {WeightFormat::kF32, WeightFormat::kBf16};
  if (!drafts_by_copy(GetParam())) all.push_back(WeightFormat::kQ4);
  const std::vector<WeightFormat> sampled = tests::sample(all, 1);
  std::vector<WeightFormat> formats = sampled;  // then the others, where these show nothing
  for (const WeightFormat format : all)
    if (std::find(sampled.begin(), sampled.end(), format) == sampled.end())
      formats.push_back(format);
  int64_t accepted = 0, drafted = 0;
  for (size_t i = 0; i < formats.size(); ++i) {
    const bool shown = (!drafts || drafted > 0) && (!accepts || accepted > 0);
    if (i >= sampled.size() && shown) break;
    const WeightFormat format = formats[i];
    const auto model = small_model(3, kVocab, format);
    const auto ar = build_on_device(plain_decoding(), model);
    const auto method = build_on_device(GetParam(), model);
    const auto plain = engine::Session::create(model, on_device()),
               session = engine::Session::create(model, on_device());
    // pia drafts from an answer what is a branch of 12 tokens old; others know nothing of a prompt.
    const bool late = name.starts_with("pia") || name.starts_with("recycling") ||
                      name.starts_with("stand") || name.starts_with("jacobi");
    for (const Turn& turn : turns(format, late ? 40 : 14)) {
      SCOPED_TRACE(fmt::format("{}, prompt of {}", engine::name_of(format), turn.prompt.size()));
      const TurnRecord expected = run(*ar, *plain, turn), got = run(*method, *session, turn);
      ASSERT_EQ(got.tokens, expected.tokens);
      same_cache(*session, *plain, model->config());
      for (const auto& s : got.steps) accepted += s.accepted, drafted += s.drafted;
    }
  }
  if (drafts) {
    EXPECT_GT(drafted, 0);
  }
  if (accepts) {
    EXPECT_GT(accepted, 0);
  }
}

// Draws are made on the device, for all rows of a tree at once, by the uniform numbers that plain
// decoding takes one by one.
class SampledOnTheDevice : public OnTheDevice {};

TEST_P(SampledOnTheDevice, TokensAreThoseOfPlainDecoding) {
  if (!has_its_turn(GetParam(), "alone, ")) return;
  if (engine::testing::kFewCases && !samples_this_time(GetParam())) return;
  const auto model = small_model(5, 12, few_bits(GetParam()));
  const auto ar = build_on_device(plain_decoding(), model);
  const auto method = build_on_device(GetParam(), model);
  const auto plain = engine::Session::create(model, on_device()),
             session = engine::Session::create(model, on_device());
  ASSERT_TRUE(session->draws_cheaply());
  base::Rng rng(10);
  // On the emulator one of the two ways to draw: 40 arms meet each of them in every run.
  std::vector<int> turns(10);
  std::iota(turns.begin(), turns.end(), 0);
  if (engine::testing::kFewCases) turns = tests::sample({0, 1}, 1);
  for (const int i : turns) {
    Turn t = turn(random_tokens(rng, 10, 12), 16);
    t.sampling = sampling_for(GetParam(), i % 2 == 0 ? engine::SamplingParams{0.9, 8, 0.95}
                                                     : engine::SamplingParams{1, 0, 1});
    if (i % 4 < 2 && by_noise(GetParam())) t.sampling.sampler = engine::Sampler::kGumbel;
    if (!gives_the_same_tokens(GetParam(), t.sampling)) continue;
    t.seed = rng.next();
    ASSERT_EQ(run(*method, *session, t).tokens, run(*ar, *plain, t).tokens);
  }
}

// Three slots of a method, whose drafts one forward of the device verifies: the tokens of single
// decoding there, seed for seed. On the emulator a usual run has a ninth of the arms or a little
// more, greedily or sampled: how slots are kept is no matter of the method.
class BatchesOnTheDevice : public OnTheDevice {};

TEST_P(BatchesOnTheDevice, GiveTheTokensOfSingleDecoding) {
  constexpr int kSlots = 3;
  const Arm& arm = GetParam();
  if (!has_its_turn(arm, "batches, ")) return;
  if (engine::testing::kFewCases && !tests::in_sample(0, 3, 1, "batches, " + arm.name)) return;
  const auto model = small_model(5, 12, few_bits(arm));
  const auto method = build_on_device(arm, model);
  const auto slots = methods::make_slots(build_on_device(arm, model, kSlots), kSlots);
  engine::SessionOptions options = on_device();
  const auto single = engine::Session::create(model, options);
  options.n_sequences = kSlots;
  const auto session = engine::Session::create(model, options);
  base::Rng rng(21);
  for (const bool sampled : tests::sample({false, true}, engine::testing::kFewCases ? 1 : 2)) {
    if (arm.carries_state && sampled) continue;
    std::vector<Turn> list;
    for (const int length : {9, 1, 20, 70}) {
      list.push_back(turn(random_tokens(rng, length, 12), 4 + length % 8));
      if (sampled) list.back().sampling = sampling_for(arm, {0.9, 8, 0.95});
      list.back().seed = rng.next();
    }
    const auto got = run_batch(slots, *session, list, methods::BatchMode::kContinuous);
    for (size_t i = 0; i < list.size(); ++i)
      EXPECT_EQ(got[i].tokens, run(*method, *single, list[i]).tokens) << "request " << i;
  }
}

// With keys and values in bytes. On the emulator a usual run has a twelfth of the arms or a little
// more: how a cache is kept is no matter of the method.
class BytesOnTheDevice : public OnTheDevice {};

TEST_P(BytesOnTheDevice, TokensAreThoseOfPlainDecoding) {
  const Arm& arm = GetParam();
  if (!has_its_turn(arm, "bytes, ")) return;
  if (engine::testing::kFewCases && !tests::in_sample(0, 4, 1, "bytes, " + arm.name)) return;
  const auto model = small_model(3, kVocab, WeightFormat::kBf16);
  std::vector<std::string> types = {"int8", "fp8"};
  if (engine::testing::kFewCases) types = tests::sample(types, 1);
  for (const std::string& kv : types) {
    SCOPED_TRACE(kv);
    const auto ar = build_on_device(plain_decoding(), model, 1, kv);
    const auto method = build_on_device(arm, model, 1, kv);
    const auto plain = engine::Session::create(model, on_device(kv)),
               session = engine::Session::create(model, on_device(kv));
    EXPECT_EQ(session->options().kv_dtype, kv);
    for (Turn& t : turns(WeightFormat::kQ4)) {
      ASSERT_EQ(run(*method, *session, t).tokens, run(*ar, *plain, t).tokens);
      same_cache(*session, *plain, model->config());
      t.sampling = sampling_for(arm, {0.9, 8, 0.95}), t.seed = 5;
      if (!gives_the_same_tokens(arm, t.sampling)) continue;
      ASSERT_EQ(run(*method, *session, t).tokens, run(*ar, *plain, t).tokens);
    }
  }
}

#ifdef EVALRUN_CUDA_EMULATED
// A step waits for the device once to verify and once for every forward, or look of heads, that its
// draft follows from: layers beside them are queued before them.
struct Waits {
  const char* arm;
  int drafting;  // of a step
};
class DraftsWait : public ::testing::TestWithParam<Waits> {};

TEST_P(DraftsWait, OncePerForward) {
  const auto model = small_model(3, kVocab, WeightFormat::kBf16);
  const auto method = build_on_device(arm_of(GetParam().arm), model);
  const auto session = engine::Session::create(model, on_device());
  const auto waits_of = [&](int max_new) {
    const Turn t = turn(periodic(20), max_new);
    const long before = emulator::waits();
    const TurnRecord record = run(*method, *session, t);
    return std::pair(emulator::waits() - before, static_cast<long>(record.steps.size()));
  };
  (void)waits_of(24);  // matrices are brought, graphs are made
  const auto [few, few_steps] = waits_of(12);
  const auto [many, many_steps] = waits_of(24);
  ASSERT_GT(many_steps, few_steps + 4);
  // An answer's last steps may be too short to draft for.
  const long expected = (many_steps - few_steps) * (1 + GetParam().drafting);
  EXPECT_LE(many - few, expected);
  EXPECT_GE(many - few, expected - 2);
}

INSTANTIATE_TEST_SUITE_P(
    Arms, DraftsWait,
    ::testing::Values(Waits{"ar", 0}, Waits{"medusa:adapter=@medusa,tree=0+1+00+01", 1},
                      Waits{"eagle:adapter=@eagle,tree=0+00+1+000+01+2", 3},
                      Waits{"falcon:adapter=@falcon,tree=0+1+00+01+000", 2},
                      Waits{"bita:adapter=@bita,tree=0+1+2+00", 0},
                      Waits{"gated_lora:adapter=@gated_lora,tree=0+00+1+01", 0},
                      Waits{"pass:adapter=@pass,calls=one,look_ahead=3", 0},
                      Waits{"pass:adapter=@pass,calls=two", 0},
                      Waits{"space:adapter=@space,tree=0+1+2+00", 0},
                      Waits{"lookahead:window=3,ngram=3,guesses=3", 0}),
    [](const auto& test) { return test_name(test.param.arm); });
#endif

// Drafts that are drawn are drawn and tried on the device. With f32 weights its bits are the CPU's,
// and so are its verdicts (engine/rejection.h), seed for seed.
class DrawnOnTheDevice : public ::testing::TestWithParam<const char*> {};

TEST_P(DrawnOnTheDevice, DraftsHaveTheVerdictsOfTheHost) {
  const auto model = small_model(7, 12);
  const Arm arm = arm_of(GetParam());
  const auto method = build_on_device(arm, model), expected = build_arm(arm, model);
  CheapDraws session(engine::Session::create(model, on_device())),
      host(make_session(model, kMaxTokens));
  base::Rng rng(13);
  int64_t accepted = 0, refused = 0;
  for (int i = 0; i < (engine::testing::kFewCases ? 4 : 10); ++i) {
    Turn t = turn(random_tokens(rng, 10, 12), 16);
    if (i == 1) t.prompt = random_tokens(rng, kMaxTokens - t.max_new, 12);  // to the very end
    t.sampling =
        i % 2 == 0 ? engine::SamplingParams{0.9, 8, 0.95} : engine::SamplingParams{1, 0, 1};
    t.seed = rng.next();
    const TurnRecord got = run(*method, session, t);
    ASSERT_EQ(got.tokens, run(*expected, host, t).tokens);
    for (const auto& s : got.steps) {
      accepted += s.accepted;
      refused += s.accepted < s.drafted_depth;
    }
  }
  EXPECT_GT(session.rejection_tests, 0);
  EXPECT_EQ(session.rejection_tests, host.rejection_tests);
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Arms, DrawnOnTheDevice,
    ::testing::Values("sps:k=5", "sps:k=3,schedule=transient,k_max=8,draft_temperature=0.7",
                      "sps:k=6,confidence=0.3", "self_spec:attention=1,mlp=none,k=5",
                      "sps:draft=trained,adapter=@draft,dtype=f32",
                      "medusa:adapter=@medusa,tree=0+1+00+01,draft=drawn,dtype=f32",
                      "eagle:adapter=@eagle,tree=0+00+1+000+01+2,draft=drawn,dtype=f32",
                      "falcon:adapter=@falcon,tree=0+1+00+01+000,draft=drawn,dtype=f32",
                      "falcon:adapter=@falcon_recurrent,tree=chain:6,draft=drawn,dtype=f32",
                      "bita:adapter=@bita,tree=0+1+2+00,draft=drawn,dtype=f32",
                      "gated_lora:adapter=@gated_lora,tree=0+00+1+01,draft=drawn,dtype=f32",
                      "pass:adapter=@pass,calls=one,look_ahead=3,dtype=f32",
                      "pass:adapter=@pass,calls=two,dtype=f32",
                      "space:adapter=@space,tree=0+1+2+00,dtype=f32"),
    [](const auto& spec) { return test_name(spec.param); });

// The best tokens of masks come with the target's rows there, by its own head. With f32 weights
// they are those that the host finds by a product of its own, so every step drafts and accepts the
// same.
TEST(MasksOnTheDevice, DraftWhatTheHostDrafts) {
  const auto model = small_model(7, 12);
  const TempFolder folder;
  const std::string tree = "tree=0+1+2+00";
  const std::pair<std::string, std::string> kinds[] = {{"bita", tree},
                                                       {"gated_lora", tree},
                                                       {"space", tree},
                                                       {"pass", "calls=one"},
                                                       {"pass", "calls=two"}};
  for (const auto& [kind, shape] : kinds) {
    AdapterFile file = random_adapter(kind, *model, 7);
    file.ids.clear();  // all tokens are drafted
    file.write(folder.file(kind));
    const Arm arm =
        arm_of(fmt::format("{}:adapter={},{},dtype=f32", kind, folder.file(kind), shape));
    const auto method = build_on_device(arm, model), expected = build_arm(arm, model);
    const auto session = engine::Session::create(model, on_device()),
               host = make_session(model, kMaxTokens);
    int64_t accepted = 0;
    for (const Turn& t : {turn({3, 1, 4, 1, 5}, 64), turn({7, 7, 2}, 64)}) {
      const TurnRecord got = run(*method, *session, t), want = run(*expected, *host, t);
      ASSERT_EQ(got.tokens, want.tokens) << kind;
      ASSERT_EQ(got.steps.size(), want.steps.size()) << kind;
      for (size_t i = 0; i < got.steps.size(); ++i) {
        EXPECT_EQ(got.steps[i].drafted, want.steps[i].drafted) << kind << ", step " << i;
        EXPECT_EQ(got.steps[i].accepted, want.steps[i].accepted) << kind << ", step " << i;
        accepted += got.steps[i].accepted;
      }
    }
    EXPECT_GT(accepted, 3) << kind;
  }
}

std::vector<Arm> matching_arms() {
  std::vector<Arm> arms = arms_of_devices();
  std::erase_if(arms, [](const Arm& arm) { return !by_noise(arm); });
  return arms;
}
INSTANTIATE_TEST_SUITE_P(Registry, OnTheDevice, ::testing::ValuesIn(arms_of_devices()),
                         [](const auto& arm) { return test_name(arm.param.name); });
INSTANTIATE_TEST_SUITE_P(Registry, BatchesOnTheDevice, ::testing::ValuesIn(arms_of_devices()),
                         [](const auto& arm) { return test_name(arm.param.name); });
INSTANTIATE_TEST_SUITE_P(Registry, BytesOnTheDevice, ::testing::ValuesIn(arms_of_devices()),
                         [](const auto& arm) { return test_name(arm.param.name); });
INSTANTIATE_TEST_SUITE_P(Registry, SampledOnTheDevice, ::testing::ValuesIn(matching_arms()),
                         [](const auto& arm) { return test_name(arm.param.name); });

}  // namespace
}  // namespace evalrun::tests
