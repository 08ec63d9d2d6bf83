// How much sessions of one thing differ on a machine, from what is stored, and what a stored
// baseline can judge where they do.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "reports/gate/gate_check.h"
#include "results/store.h"

namespace evalrun::reports {

// This run and all finished ones of the same build, machine, arms and prompts, without planted
// faults: sessions of an A/A history. Oldest first.
std::vector<int64_t> sessions_like(const results::ResultStore& store, int64_t run_id);

// Standard deviation between sessions of the mean ln of the speedup over prompts, of the arm in
// which it is largest; arms and what they stand against are those that the gate judges. nullopt for
// fewer than two sessions.
std::optional<double> session_spread(const results::ResultStore& store,
                                     const std::vector<int64_t>& sessions,
                                     const GateOptions& options = {});

// Chance that ln of a speedup changes from one session to another by `beyond` more than it truly
// did, in one direction, or by more still: Student's t with a spread estimated from `history`
// sessions (two at least).
double session_change_p(double beyond, double spread, int history);

// The smallest slowdown (0.05 = 5 %) that is proven to be more than `margin` in four of five checks
// at one-sided level `alpha`: one new session against `baseline_sessions`, with a spread estimated
// from `history` sessions (two at least).
double detectable_slowdown(double spread, int baseline_sessions, int history, double margin,
                           double alpha);

}  // namespace evalrun::reports
