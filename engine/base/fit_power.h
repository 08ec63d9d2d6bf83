// What a set of goodness-of-fit tests would have found.
#pragma once
#include <cstdint>
#include <span>

#include "engine/base/goodness_of_fit.h"

namespace evalrun::base {

// The smallest total variation that the tests together (joint_p below `level`) would have found
// with a probability of 95 %; 1 where they would not have found any. By simulation of the tests;
// within about 5 % of its value. `tests` are independent of each other.
//
// A fault of total variation D moves D of the probability at every place, in proportion to what is
// there, in two ways, of which the one that is harder to find counts:
// - between two halves of the tokens, chosen at random, in a direction chosen at random;
// - to the tail: from the likeliest tokens, half of the probability or more, to all others.
// At a place it moves at most half of what the likeliest token leaves: where a token is all but
// certain little can be moved, and much would be found at once. When every place is certain, D goes
// to tokens of probability 0.
//
// A fault that keeps to a few rare tokens, or to few of the places, can be larger and not be found.
double smallest_variation_found(std::span<const GoodnessOfFit> tests, double level, uint64_t seed);

}  // namespace evalrun::base
