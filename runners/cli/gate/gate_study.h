// What scripts/gate-study measured about the gate itself: how often it calls an unchanged build
// slower, and how often it finds a slowdown of 5 %. The figures are data (gate_study.json, compiled
// in), written by that script and by nobody else.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace evalrun::cli {

// {"date", "processor", "cores", "commit", "model", "suite", "processes", "kinds": [{"kind",
// "expected", "decisions", "cross_process", "red", "ok", "inconclusive", "wrong_output", "other",
// "looks", "seconds", "causes": {name: count}}]}
const nlohmann::ordered_json& gate_study();

// "false alarms: 1 of 224 ... ", two lines for the self-test's table.
std::string gate_study_text(const nlohmann::ordered_json& study);

}  // namespace evalrun::cli
