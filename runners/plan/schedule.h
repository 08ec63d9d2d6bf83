// The order of a run: which arm meets which prompt when. A pure function of its arguments, so that
// a resumed run continues in the order of the first one.
//
// Interleaved: prompts come in groups of as many as there are arms; a group draws one permutation
// of the arms, and the visit of its i-th prompt in repeat r runs the permutation rotated by a row
// that walks through all rotations over i and over r. So within a repeat (over a whole group) and
// over the repeats of a prompt every arm stands in every slot equally often: a slow drift of the
// machine, or a warm cache left by the arm before, falls on all arms alike.
#pragma once
#include <cstdint>
#include <vector>

#include "runners/plan/suite.h"

namespace evalrun::runners {

struct Visit {
  int repeat = 0, sample = 0;
  int prompt = 0, arm = 0;  // indices into the plan
  int block = 0,
      slot = 0;  // block: one prompt in one repeat and sample; slot: place of the arm in it
  bool operator==(const Visit&) const = default;
};

struct ScheduleShape {
  int n_prompts = 0, n_arms = 0, repeats = 1, samples = 1;
};
std::vector<Visit> make_schedule(const ScheduleShape& shape, Order order, uint64_t seed);

}  // namespace evalrun::runners
