// Designs of every kind, for the tests that compare figures with the plain way to them.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "reports/data/design.h"
#include "tests/reports/data/jackknife_reference.h"

namespace evalrun::tests {

inline constexpr size_t kRunSizes[] = {0, 1, 2, 3, 5, 16, 61, 300};

// Every prompt a unit, in their order; strata as `stratum` says.
inline reports::Design of_strata(size_t n, const std::function<int(size_t)>& stratum) {
  reports::Design d;
  for (size_t i = 0; i < n; ++i)
    d.unit.push_back(static_cast<int>(i)), d.stratum.push_back(stratum(i));
  return d;
}

// Groups of prompts, each with a stratum of its own choice.
inline reports::Design of_groups(size_t n, const std::function<int(size_t)>& group, base::Rng& rng,
                                 uint64_t strata) {
  reports::Design d;
  std::map<int, int> units;
  for (size_t i = 0; i < n; ++i) {
    d.unit.push_back(plain_number_of(units, group(i)));
    if (d.stratum.size() < units.size()) d.stratum.push_back(static_cast<int>(rng.below(strata)));
  }
  return d;
}

// Units that are prompts, numbered from the last prompt on.
inline reports::Design backwards(size_t n) {
  reports::Design d = of_strata(n, [](size_t i) { return static_cast<int>(i % 3); });
  for (size_t i = 0; i < n; ++i) d.unit[i] = static_cast<int>(n - 1 - i);
  return d;
}

struct NamedDesign {
  std::string name;
  reports::Design design;
};

inline std::vector<NamedDesign> designs_of(size_t n, base::Rng& rng) {
  const auto any_of = [&](uint64_t k) {
    return [&rng, k](size_t) { return static_cast<int>(rng.below(k)); };
  };
  const size_t half = n / 2;
  return {{"none", {}},
          {"one stratum", of_strata(n, [](size_t) { return 0; })},
          {"two strata", of_strata(n, [](size_t i) { return static_cast<int>(i % 2); })},
          {"many strata", of_strata(n, any_of(1 + n / 3))},
          {"nothing but single units", of_strata(n, [](size_t i) { return static_cast<int>(i); })},
          {"one single unit", of_strata(n, [](size_t i) { return i == 0 ? 7 : 3; })},
          {"some single units",
           of_strata(n, [=](size_t i) { return i < half ? 0 : static_cast<int>(i); })},
          {"groups", of_groups(n, any_of(1 + n / 3), rng, 1)},
          {"groups in strata", of_groups(n, any_of(1 + n / 2), rng, 3)},
          {"two units", of_groups(
                            n, [](size_t i) { return static_cast<int>(i % 2); }, rng, 1)},
          {"one unit", of_groups(
                           n, [](size_t) { return 0; }, rng, 1)},
          {"backwards", backwards(n)}};
}

// `check` for every design, as it is and with its strata made beforehand.
inline void for_designs(
    const std::function<void(const reports::Design&, size_t n, base::Rng&)>& check) {
  base::Rng rng(11);
  for (const size_t n : kRunSizes)
    for (NamedDesign& d : designs_of(n, rng)) {
      SCOPED_TRACE(d.name + " of " + std::to_string(n));
      check(d.design, n, rng);
      if (d.design.empty()) continue;
      d.design.strata = strata_of(d.design, n);
      check(d.design, n, rng);
    }
}

// To the bit.
inline void expect_equal(double fast, double plain) {
  EXPECT_EQ(bits_of(fast), bits_of(plain)) << fast;
}

inline void expect_equal(const std::optional<base::Interval>& fast,
                         const std::optional<base::Interval>& plain) {
  ASSERT_EQ(fast.has_value(), plain.has_value());
  if (!plain) return;
  expect_equal(fast->lo, plain->lo);
  expect_equal(fast->hi, plain->hi);
}

}  // namespace evalrun::tests
