#include "methods/merged_request.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

// A thing that a forward has once. Known by its address.
template <typename T>
void share(T*& common, T* own, const char* what) {
  if (own == nullptr) return;
  EVALRUN_CHECK(common == nullptr || common == own, "rows of one forward with two {}", what);
  common = own;
}

// Known by its value.
template <typename T>
void share_equal(const T*& common, const T* own, const char* what) {
  if (own == nullptr) return;
  EVALRUN_CHECK(common == nullptr || *common == *own, "rows of one forward with two {}", what);
  if (common == nullptr) common = own;
}

bool same_view(const engine::InputView& a, const engine::InputView& b) {
  return a.data == b.data && a.rows == b.rows && a.cols == b.cols && a.computed == b.computed;
}

}  // namespace

MergedRequest::MergedRequest() {
  rows_.reserve(engine::kMaxRows);
  draws_.reserve(engine::kMaxRows);
  tests_.reserve(engine::kMaxRows);
}

void MergedRequest::clear() {
  common_ = {};
  rows_.clear();
  draws_.clear();
  tests_.clear();
  places_.clear();
  blocks_ = drawn_tokens_ = 0;
}

bool MergedRequest::fits(const engine::ForwardRequest& part) const {
  return rows_.size() + part.rows.size() <= static_cast<size_t>(engine::kMaxRows);
}

void MergedRequest::add_rows(const engine::ForwardRequest& part, int sequence) {
  const auto first = static_cast<int32_t>(rows_.size());
  int32_t blocks = 0;  // of the part
  for (engine::Row row : part.rows) {
    if (row.parent >= 0) row.parent += first;
    if (row.block >= 0) {
      blocks = std::max(blocks, row.block + 1);
      row.block += blocks_;
    }
    row.sequence = sequence;
    rows_.push_back(row);
  }
  blocks_ += blocks;
}

void MergedRequest::add_dists(const engine::ForwardRequest& part, Place& place) {
  share(common_.dists, part.dists, "stores of distributions");
  place.first_drawn_token = drawn_tokens_;
  for (engine::DistributionDraw draw : part.distribution_draws) {
    draw.row += place.first;
    place.drawn_tokens += static_cast<int>(draw.uniforms.size());
    draws_.push_back(draw);
  }
  drawn_tokens_ += place.drawn_tokens;
  if (part.rejection_tests.empty()) return;
  EVALRUN_CHECK(tests_.empty() || common_.independent == part.independent,
                "children of one forward that were drawn in two ways");
  common_.independent = part.independent;
  for (engine::RejectionTest test : part.rejection_tests) {
    test.row += place.first;
    tests_.push_back(test);
  }
}

void MergedRequest::add(const engine::ForwardRequest& part, int sequence) {
  EVALRUN_CHECK(!part.rows.empty() && fits(part), "{} rows beside {}", part.rows.size(),
                rows_.size());
  EVALRUN_CHECK(!part.extend, "a part of a forward cannot go on from an earlier one");
  const bool first = places_.empty();
  // These act on rows that do not ask for them.
  EVALRUN_CHECK(first || (common_.skip == nullptr) == (part.skip == nullptr),
                "rows of one forward with a skip set and without");
  EVALRUN_CHECK(first || std::ranges::equal(common_.residual_layers, part.residual_layers),
                "rows of one forward with two lists of layers");
  common_.residual_layers = part.residual_layers;
  share_equal(common_.skip, part.skip, "skip sets");
  share_equal(common_.sampling, part.sampling, "kinds of sampling");
  share(common_.prefix, part.prefix, "prefix banks");
  share(common_.low_rank, part.low_rank, "low-rank updates");
  if (part.embeddings.rows > 0) {
    EVALRUN_CHECK(common_.embeddings.rows == 0 || same_view(common_.embeddings, part.embeddings),
                  "rows of one forward with two sets of embeddings");
    common_.embeddings = part.embeddings;
  }
  if (part.best > 0) {
    EVALRUN_CHECK(common_.best == 0 || common_.best == part.best,
                  "rows of one forward that want their best {} and {}", common_.best, part.best);
    common_.best = part.best;
  }
  common_.log_sums |= part.log_sums;
  Place place;
  place.first = static_cast<int>(rows_.size());
  place.rows = static_cast<int>(part.rows.size());
  add_rows(part, sequence);
  add_dists(part, place);
  places_.push_back(place);
}

engine::ForwardRequest MergedRequest::request() const {
  engine::ForwardRequest request = common_;
  request.rows = rows_;
  request.distribution_draws = draws_;
  request.rejection_tests = tests_;
  return request;
}

}  // namespace evalrun::methods
