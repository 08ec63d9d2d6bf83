// The order of a run: which arm meets which prompt when. A pure function of its arguments, so that
// a resumed run continues in the order of the first one.
//
// Prompts come in waves: successive ones of one data set, one at a time where nothing is decoded in
// batches (runners/plan/waves.h). A block is a wave in one repeat and sample. In it an arm has as
// many prompts as its turn takes, then the next arm has the same ones, and so on through the wave:
// arms that are compared stand close together in time. Arms whose turns are of another length have
// the wave before or after.
//
// Interleaved: waves come in groups of as many as there are arms; a group draws one permutation of
// the arms, and the block of its i-th wave in repeat r runs the permutation rotated by a row that
// walks through all rotations over i and over r. So within a repeat (over a whole group) and over
// the repeats of a wave every arm stands in every slot equally often: a slow drift of the machine,
// or a warm cache left by the arm before, falls on all arms alike.
#pragma once
#include <cstdint>
#include <vector>

#include "runners/plan/suite.h"

namespace evalrun::runners {

// One generation.
struct Visit {
  int repeat = 0, sample = 0;
  int prompt = 0, arm = 0;  // indices into the plan
  int block = 0,
      slot = 0;  // block: one wave in one repeat and sample; slot: place of the arm in its turn
  bool operator==(const Visit&) const = default;
};

struct ScheduleShape {
  std::vector<std::vector<int>> waves;  // of indices of prompts, none empty
  int n_arms = 0, repeats = 1, samples = 1;
  // By arm: so many prompts of a wave are a turn of it. Empty: whole waves.
  std::vector<int> turns = {};
};
// A wave per prompt.
std::vector<std::vector<int>> waves_of_one(int n_prompts);
std::vector<Visit> make_schedule(const ScheduleShape& shape, Order order, uint64_t seed);

}  // namespace evalrun::runners
