// Masks that know a counting text by heart: for tests of what a mask method drafts, and of the rows
// of its steps.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/cost/row_cost.h"
#include "tests/methods/support/adapters.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/fake_session.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::known_masks {

inline constexpr int kIds = 32;  // also the width of small_model(): token t is the direction t

inline LogitTable counting() {
  return [](std::span<const int32_t> context, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>((context.back() + 1) % kIds)] = 1;
  };
}

// Masks that know the text: the one in the slot of token x gives the token after it, `off` places
// further. With distinct masks, mask j must stand in place j.
inline FakeSession::MaskTable knowing(bool distinct, int off) {
  return [=](std::span<const int32_t> context, int place, int embedding, std::span<float> state) {
    EXPECT_EQ(embedding, distinct ? place - 1 : 0);
    state[static_cast<size_t>((context.back() + place + 1 + off) % kIds)] = 1;
  };
}

inline std::string written(const std::string& name, const AdapterFile& file) {
  static const TempFolder folder;
  const std::string path = folder.file(name + ".safetensors");
  file.write(path);
  return path;
}

// Masks and, where the method has them, a prefix or updates of zeros; states are logits.
inline std::string mask_adapter(const std::string& method, int masks, bool distinct) {
  const auto model = small_model(1, kIds);
  AdapterFile file;
  file.matrix("mask_embed", distinct ? masks : 1, kIds);
  std::vector<float> same(kIds * kIds);
  for (size_t i = 0; i < kIds; ++i) same[i * kIds + i] = 1;
  file.matrix("lm_head.weight", kIds, kIds, same);
  file.metadata = adapter_metadata(method, *model, fmt::format(R"({{"masks": {}}})", masks));
  return written(fmt::format("{}-{}-{}", method, masks, distinct), file);
}

struct SeenRows {
  std::vector<engine::Row> rows;
  int length;
};

struct Watched {
  std::vector<SeenRows> steps;  // the prompt's last row left out
  results::TurnRecord turn;
};

inline Watched watch(const std::string& spec, FakeSession::MaskTable masks, int max_new) {
  FakeSession session(kIds, 4000, counting());
  session.set_masks(kIds, std::move(masks));
  Watched seen;
  session.watch = [&](const engine::ForwardRequest& request) {
    seen.steps.push_back({{request.rows.begin(), request.rows.end()}, session.length(0)});
  };
  const auto method = build_method(spec, small_model(1, kIds));
  Turn turn{{3, 4, 5}, 0, max_new};
  seen.turn = run(*method, session, turn);
  seen.steps.erase(seen.steps.begin());
  return seen;
}

// A forward of n rows costs 1 + per_row (n - 1) plain steps.
inline engine::RowCostTable linear_costs(double per_row) {
  engine::RowCostTable table;
  for (const int n : {1, 2, 64}) {
    engine::RowCost cost;
    cost.rows = n, cost.ms = 1 + per_row * (n - 1);
    table.rows.push_back(cost);
  }
  return table;
}

template <typename F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const base::Error& e) {
    return e.message() + " | " + e.hint();
  }
  return "nothing was thrown";
}
// The message and the hint of the error that an expression throws.
#define EXPECT_MESSAGE(expression, part)                                               \
  EXPECT_NE(::evalrun::tests::known_masks::message_of([&] { expression; }).find(part), \
            std::string::npos)                                                         \
      << ::evalrun::tests::known_masks::message_of([&] { expression; })

}  // namespace evalrun::tests::known_masks
