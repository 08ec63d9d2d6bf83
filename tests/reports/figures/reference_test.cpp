// Which arm a row is compared with: speed and tokens, and quality against its control.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using results::Row;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::SyntheticArm;

class ReferenceTest : public ReportTest {};

TEST_F(ReferenceTest, ATunedTargetIsComparedWithItsOwnPlainDecoding) {
  EXPECT_THAT(to_text(report()), Not(HasSubstr("tuned model")));
  run_.key = "tuned";
  run_.arms = tests::arms_with_a_tuned_target();
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int, int, int) {
    if (a.model_hash == "tuned") g.turns[0].tokens[0] += 1000;
  };
  const int64_t run_id = tests::fill(store_, run_);
  const Report r = build_report(store_, run_id);
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(pld.reference, "ar");
  EXPECT_DOUBLE_EQ(*pld.speed.speedup, 152.0 * 10 / (60 * 12));
  EXPECT_EQ(pld.same_tokens.share, 1.0);
  const ReportRow& plain = row(r, "ar_tuned", "gsm8k");
  EXPECT_EQ(plain.reference, "");
  EXPECT_EQ(plain.speed.speedup, 1.0);
  EXPECT_FALSE(plain.speed.interval.has_value());
  EXPECT_FALSE(plain.acceptance.no_draft.has_value());
  EXPECT_DOUBLE_EQ(*plain.speed.tok_s, 125);
  const ReportRow& space = row(r, "space", "gsm8k");
  EXPECT_EQ(space.reference, "ar_tuned");
  EXPECT_DOUBLE_EQ(*space.speed.speedup, 152.0 * 8 / (60 * 12));
  EXPECT_TRUE(space.speed.interval.has_value());
  EXPECT_DOUBLE_EQ(*space.why.t_ratio, 11.5 / 7.9);
  EXPECT_EQ(space.same_tokens.share, 1.0);
  EXPECT_EQ(space.quality.at("exact@1").compared, 3);  // with the answers of ar
  store_.execute(
      "UPDATE score SET value = 1 - value WHERE generation_id IN (SELECT g.id FROM "
      "generation g JOIN arm a ON a.id = g.arm_id WHERE a.label = 'ar_tuned')");
  const Report other = build_report(store_, run_id);
  const Quality& q = row(other, "ar_tuned", "gsm8k").quality.at("exact@1");
  EXPECT_EQ(q.differing, 3);
  EXPECT_EQ(q.better, 1);  // 0 1 0 instead of 1 0 1
  EXPECT_EQ(q.worse, 2);
  EXPECT_DOUBLE_EQ(q.difference->value, -1.0 / 3);
  // Student's t with 2 degrees of freedom over -1, 1, -1: no other arm scores otherwise.
  EXPECT_NEAR(q.difference->interval->hi, -1.0 / 3 + 4.302652729911275 * std::sqrt(4.0 / 9), 1e-9);
  EXPECT_NEAR(*q.difference->p, 2.0 / 3, 1e-9);
  EXPECT_EQ(row(other, "space", "gsm8k").quality.at("exact@1").differing, 0);
  EXPECT_THAT(to_text(other), HasSubstr("quality against ar"));
  EXPECT_THAT(to_text(other), HasSubstr("1 / 0 / 2"));
  EXPECT_THAT(to_text(r), Not(HasSubstr("better / equal / worse")));  // nothing differs

  const Report control = build_report(store_, run_id, {.control = "ar_tuned"});
  EXPECT_DOUBLE_EQ(row(control, "space", "gsm8k").quality.at("exact@1").difference->value, 1.0 / 3);
  EXPECT_EQ(row(control, "ar", "gsm8k").quality.at("exact@1").better, 2);
  EXPECT_EQ(row(control, "ar_tuned", "gsm8k").quality.at("exact@1").compared, 0);
  EXPECT_THAT(to_text(control), HasSubstr("quality against ar_tuned"));
  EXPECT_THROW((void)build_report(store_, run_id, {.control = "sft"}), base::Error);

  const std::string text = to_text(r), note =
                                           "instead of tiny-model: ar_tuned, space (against "
                                           "ar_tuned). Their speedup";
  EXPECT_THAT(text, HasSubstr(note));
  EXPECT_EQ(text.find("tuned model:"), text.rfind("tuned model:"));
  int arms = 0;
  const RunData data = load_run(store_, run_id);
  store_.query(
      "SELECT a.label, b.label FROM v_reference r JOIN arm a ON a.id = r.arm_id "
      "JOIN arm b ON b.id = r.reference_id WHERE r.run_id = ?",
      {run_id}, [&](const Row& v) {
        EXPECT_EQ(data.reference(*data.arm(v.text(0)))->label, v.text(1));
        ++arms;
        return true;
      });
  EXPECT_EQ(arms, 5);
}

// A batch is compared with plain decoding of as many sequences, tuned targets with their own.
TEST_F(ReferenceTest, ABatchIsComparedWithPlainDecodingOfThatBatch) {
  run_.key = "batches";
  run_.arms.clear();
  for (const int batch : {1, 8})
    for (SyntheticArm arm : tests::arms_with_a_tuned_target()) {
      arm.batch = batch;
      if (batch > 1) {
        arm.label = arm.role == "aa" ? "ar, batch 8 (A/A)" : arm.label + ", batch 8";
        arm.settings["batch_mode"] = "static";
      }
      run_.arms.push_back(arm);
    }
  const int64_t run_id = tests::fill(store_, run_);
  const std::map<std::string, std::string> expected = {{"ar", "ar"},
                                                       {"ar (A/A)", "ar"},
                                                       {"pld:k=4", "ar"},
                                                       {"ar_tuned", "ar_tuned"},
                                                       {"space", "ar_tuned"},
                                                       {"ar, batch 8", "ar, batch 8"},
                                                       {"ar, batch 8 (A/A)", "ar, batch 8"},
                                                       {"pld:k=4, batch 8", "ar, batch 8"},
                                                       {"ar_tuned, batch 8", "ar_tuned, batch 8"},
                                                       {"space, batch 8", "ar_tuned, batch 8"}};
  const RunData data = load_run(store_, run_id);
  EXPECT_EQ(data.baseline()->label, "ar") << "the smallest batch is the run's";
  std::map<std::string, std::string> by_data, by_view;
  for (const ArmInfo& arm : data.arms) by_data[arm.label] = data.reference(arm)->label;
  store_.query(
      "SELECT a.label, b.label FROM v_reference r JOIN arm a ON a.id = r.arm_id "
      "JOIN arm b ON b.id = r.reference_id WHERE r.run_id = ?",
      {run_id}, [&](const Row& v) {
        EXPECT_TRUE(by_view.emplace(v.text(0), v.text(1)).second) << v.text(0) << " twice";
        return true;
      });
  EXPECT_EQ(by_data, expected);
  EXPECT_EQ(by_view, expected);
}

// Plain decoding of every batch, and of one prompt after the other.
TEST_F(ReferenceTest, EveryBatchHasItsOwn) {
  RunData data;
  const auto add = [&](const char* method, const char* role, const char* hash, int64_t batch,
                       const char* mode = "static") {
    ArmInfo a;
    a.id = static_cast<int64_t>(data.arms.size()) + 1;
    a.method = method, a.role = role, a.model_hash = hash, a.batch = batch;
    a.settings = batch > 1 ? fmt::format(R"({{"batch_mode":"{}"}})", mode) : "{}";
    data.arms.push_back(a);
  };
  for (const int64_t batch : {1, 8}) add("ar", "baseline", "h", batch);
  for (const int64_t batch : {1, 8}) add("pld", "method", "h", batch);
  for (const int64_t batch : {1, 8}) add("ar_tuned", "method", "t", batch);
  for (const int64_t batch : {1, 8}) add("space", "method", "t", batch);
  add("ar", "aa", "h", 8);
  add("pld", "method", "h", 8, "continuous");
  const std::vector<int64_t> own = {1, 2, 1, 2, 5, 6, 5, 6, 2, 1};
  const std::vector<int64_t> alone = {1, 1, 1, 1, 5, 5, 5, 5, 1, 1};
  for (size_t i = 0; i < data.arms.size(); ++i) {
    EXPECT_EQ(data.reference(data.arms[i])->id, own[i]) << i;
    EXPECT_EQ(data.reference_alone(data.arms[i])->id, alone[i]) << i;
  }
  EXPECT_EQ(data.baseline()->id, 1);
  std::erase_if(data.arms, [](const ArmInfo& a) { return a.batch == 1; });
  EXPECT_EQ(data.reference_alone(data.arms[0]), nullptr);
}

// Where the plain decoding is missing, there is nothing better than the baseline.
TEST_F(ReferenceTest, ReferencesOfOddRuns) {
  const auto arm = [](int64_t id, const char* method, const char* role, const char* hash) {
    ArmInfo a;
    a.id = id;
    a.label = a.method = method;
    a.role = role;
    a.model_hash = hash;
    return a;
  };
  RunData data;
  data.arms = {arm(1, "space", "method", "t"), arm(2, "pld", "method", "h"),
               arm(3, "ar_tuned", "method", "t"), arm(4, "ar_tuned", "method", "h")};
  const auto reference = [&](size_t i) {
    const ArmInfo* found = data.reference(data.arms[i]);
    return found == nullptr ? 0 : found->id;
  };
  EXPECT_EQ(reference(0), 3);
  EXPECT_EQ(reference(1), 4);  // without a baseline: any plain decoding of its model
  data.arms.push_back(arm(5, "ar", "baseline", "h"));
  EXPECT_EQ(reference(0), 3);
  EXPECT_EQ(reference(1), 5);
  EXPECT_EQ(reference(2), 3);
  EXPECT_EQ(reference(3), 4);  // its own, even of an unchanged model
  EXPECT_EQ(reference(4), 5);
  data.arms[1].batch = 8;
  EXPECT_EQ(reference(1), 5);  // no plain decoding of that batch
  data.arms[0].batch = 8;
  EXPECT_EQ(reference(0), 5);
  data.arms[0].batch = data.arms[1].batch = 1;
  data.arms[2].model_hash = "another";
  EXPECT_EQ(reference(0), 5);
  data.arms = {data.arms[1]};
  EXPECT_EQ(reference(0), 0);
}

}  // namespace
}  // namespace evalrun::reports
