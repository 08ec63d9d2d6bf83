// Short ways to look into a store, for its tests.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "results/store.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {

inline int64_t integer(const ResultStore& store, const std::string& sql) {
  int64_t v = -1;
  store.query(sql, {}, [&](const Row& r) {
    v = r.integer(0);
    return false;
  });
  return v;
}
inline double real(const ResultStore& store, const std::string& sql) {
  double v = -1;
  store.query(sql, {}, [&](const Row& r) {
    v = r.number(0);
    return false;
  });
  return v;
}
inline std::string text(const ResultStore& store, const std::string& sql) {
  std::string v;
  store.query(sql, {}, [&](const Row& r) {
    v = r.text(0);
    return false;
  });
  return v;
}

// The error that opening or `f` ends in.
template <typename F>
base::Error error_of(const F& f) {
  try {
    f();
  } catch (const base::Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return base::usage_error("none");
}

inline RunRecord run_record(const std::string& key, const std::string& label = "") {
  RunRecord r;
  r.key = key;
  r.label = label;
  return r;
}

inline tests::SyntheticRun usual() {
  tests::SyntheticRun run;
  run.arms = tests::usual_arms();
  return run;
}

}  // namespace evalrun::results
