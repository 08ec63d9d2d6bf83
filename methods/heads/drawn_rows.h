// Tokens drawn for several rows by one call of Session::draw(), which lists them in the order of
// the draws: whose are whose.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/session.h"

namespace evalrun::methods {

class DrawnRows {
 public:
  // Forgets what was drawn; from now on there are `rows` rows, none with a draw.
  void begin(int rows) {
    of_row_.assign(static_cast<size_t>(rows), {});
    next_ = 0;
  }
  // The draws, in their order.
  void add(const engine::DistributionDraw& draw) {
    const int n = static_cast<int>(draw.uniforms.size());
    of_row_[static_cast<size_t>(draw.row)] = {next_, n};
    next_ += n;
  }
  // What Session::draw() gave. Must outlive the rows that are read.
  void set(std::span<const int32_t> tokens) { tokens_ = tokens; }
  // No tokens where nothing was drawn.
  engine::RowScores scores(int row) const {
    const Tokens& own = of_row_[static_cast<size_t>(row)];
    engine::RowScores scores;
    scores.drawn = tokens_.subspan(static_cast<size_t>(own.first), static_cast<size_t>(own.n));
    return scores;
  }

 private:
  struct Tokens {
    int first = 0, n = 0;
  };
  std::vector<Tokens> of_row_;
  int next_ = 0;
  std::span<const int32_t> tokens_;
};

}  // namespace evalrun::methods
