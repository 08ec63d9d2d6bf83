// What is exhaustive rather than different: a part of it in a usual run, chosen by a seed, all of
// it in scripts/test --all. Every kind of test runs each time; what changes from run to run is
// which sizes, shapes and programs it meets.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

namespace evalrun::tests {

// scripts/test --all sets it.
inline bool test_everything() { return std::getenv("EVALRUN_TEST_ALL") != nullptr; }

// scripts/test draws one for a whole run; a test started by hand draws its own. It is printed once,
// so that it stands in the output of whatever fails.
inline uint32_t sample_seed() {
  static const uint32_t seed = [] {
    const char* given = std::getenv("EVALRUN_TEST_SEED");
    const uint32_t drawn = given != nullptr
                               ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                               : std::random_device()() % 1'000'000;
    std::printf("samples: EVALRUN_TEST_SEED=%u repeats them, EVALRUN_TEST_ALL=1 takes everything\n",
                drawn);
    std::fflush(stdout);
    return drawn;
  }();
  return seed;
}

// The numbers of `n` out of `of` things, ascending: Knuth's selection sampling, each as likely as
// any other.
inline std::vector<size_t> choose(size_t of, size_t n, uint32_t seed, const std::string& name) {
  std::vector<uint32_t> words = {seed, static_cast<uint32_t>(of)};
  words.insert(words.end(), name.begin(), name.end());
  std::seed_seq sequence(words.begin(), words.end());
  std::mt19937 random(sequence);
  std::vector<size_t> chosen;
  for (size_t i = 0; i < of; ++i)
    if (random() % (of - i) < n - chosen.size()) chosen.push_back(i);
  return chosen;
}

// `n` of `all`, in their order. The same seed gives the same ones to the same test, and others to
// another: between the paths and formats of a parameterised test everything is met.
template <typename T>
std::vector<T> sample(const std::vector<T>& all, size_t n) {
  if (test_everything() || n >= all.size()) return all;
  std::string name;
  if (const auto* test = ::testing::UnitTest::GetInstance()->current_test_info(); test != nullptr)
    name = std::string(test->test_suite_name()) + "." + test->name();
  std::vector<T> part;
  for (const size_t i : choose(all.size(), n, sample_seed(), name)) part.push_back(all[i]);
  return part;
}
template <typename T>
std::vector<T> sample(std::initializer_list<T> all, size_t n) {
  return sample(std::vector<T>(all), n);
}

// Whether case number `i` of `of` is among the `n` that a usual run does in full, of cases that are
// tests of their own and differ in a format or path only.
inline bool in_sample(size_t i, size_t of, size_t n, const std::string& name) {
  if (test_everything() || n >= of) return true;
  const std::vector<size_t> chosen = choose(of, n, sample_seed(), name);
  return std::find(chosen.begin(), chosen.end(), i) != chosen.end();
}

}  // namespace evalrun::tests
