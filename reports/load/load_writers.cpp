// What a load says: tables and notes, and its JSON.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "reports/document/records.h"
#include "reports/format.h"
#include "reports/json_values.h"
#include "reports/load/load_figures.h"

namespace evalrun::reports {
namespace {

// Of a core: above it the client may be what is measured.
constexpr double kBusyClient = 0.10;
// A level that gives less than this much more than the one before is past the knee.
constexpr double kKneeGain = 1.10;

const std::string& load_server_name(const LoadReport& report, const LoadRow& row) {
  return report.setup.servers[static_cast<size_t>(row.server)].name;
}
std::string load_level_name(const LoadReport& report, const LoadRow& row) {
  return to_string(report.setup.levels[static_cast<size_t>(row.level)]);
}

Cell load_estimate_cell(const std::optional<Estimate>& e, int decimals) {
  if (!e) return Cell("-");
  return figure_cell(e->value, e->interval, e->n_eff, decimals);
}
Cell load_percentile_cell(const std::optional<LoadPercentiles>& p,
                          LoadPercentile LoadPercentiles::*which, int decimals) {
  if (!p) return Cell("-");
  const LoadPercentile& x = (*p).*which;
  return figure_cell(x.value, x.interval, p->prompts, decimals);
}

Table load_throughput_table(const LoadReport& report) {
  Table table;
  table.columns = {{.name = "level", .words = true},
                   {.name = "server", .words = true},
                   {.name = "tok/s"},
                   {.name = "over baseline"},
                   {.name = "tok/s full", .room = Room::kPage},
                   {.name = "requests/s"},
                   {.name = "in flight", .room = Room::kWide},
                   {.name = "saturated", .words = true},
                   {.name = "idle cost", .room = Room::kWide},
                   {.name = "accepted", .room = Room::kWide},
                   {.name = "client cores", .room = Room::kWide},
                   {.name = "failed"}};
  if (!report.objective.empty()) table.columns.push_back({.name = "good requests/s"});
  for (const LoadRow& row : report.rows) {
    std::vector<Cell> cells = {
        load_level_name(report, row),
        load_server_name(report, row),
        load_estimate_cell(row.tok_s, 1),
        row.server == 0 ? Cell("1") : load_estimate_cell(row.tok_s_ratio, 3),
        number(row.full_tok_s, 1),
        load_estimate_cell(row.req_s, 2),
        number(row.in_flight, 1),
        row.saturated
            ? Cell(*row.saturated ? "yes" : "no", *row.saturated ? Style::kWarn : Style::kPlain)
            : Cell("-"),
        load_estimate_cell(row.idle_ratio, 3),
        percent(row.alpha, 1),
        number(row.client_cpu, 3),
        Cell(row.failed == 0 ? "0" : fmt::format("{} of {}", row.failed, row.requests),
             row.failed == 0 ? Style::kPlain : Style::kBad)};
    if (!report.objective.empty())
      cells.emplace_back(row.good_rps ? fmt::format("{} ({} {})", number(row.good_rps, 2),
                                                    percent(row.good_share, 0),
                                                    bracket(*row.good_interval, 2))
                                      : "-");
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table load_latency_table(const LoadReport& report) {
  Table table;
  table.columns = {{.name = "level", .words = true}, {.name = "server", .words = true}};
  for (const char* name : {"TTFT ms p50", "p95", "TPOT ms p50", "p95"})
    table.columns.push_back({.name = name});
  table.columns.push_back({.name = "TPOT over baseline"});
  table.columns.push_back({.name = "ITL ms p95"});
  table.columns.push_back({.name = "gap ms p95", .room = Room::kPage});
  table.columns.push_back({.name = "stall ms p95", .room = Room::kPage});
  table.columns.push_back({.name = "longest stall ms"});
  table.columns.push_back({.name = "late", .room = Room::kPage});
  for (const LoadRow& row : report.rows)
    table.rows.push_back({load_level_name(report, row), load_server_name(report, row),
                          load_percentile_cell(row.ttft, &LoadPercentiles::p50, 0),
                          load_percentile_cell(row.ttft, &LoadPercentiles::p95, 0),
                          load_percentile_cell(row.tpot, &LoadPercentiles::p50, 1),
                          load_percentile_cell(row.tpot, &LoadPercentiles::p95, 1),
                          row.server == 0 ? Cell("1") : load_estimate_cell(row.tpot_ratio, 3),
                          load_percentile_cell(row.itl, &LoadPercentiles::p95, 1),
                          load_percentile_cell(row.gap, &LoadPercentiles::p95, 1),
                          load_percentile_cell(row.stall, &LoadPercentiles::p95, 0),
                          Cell(number(row.longest_stall_ms, 0)),
                          Cell(row.late == 0 ? "0" : fmt::format("{}", row.late))});
  return table;
}

// The first closed level of each server that gives hardly more than the one before.
void add_load_knees(const LoadReport& report, Document& out) {
  for (size_t s = 0; s < report.setup.servers.size(); ++s) {
    const LoadRow* before = nullptr;
    for (const LoadRow& row : report.rows) {
      if (static_cast<size_t>(row.server) != s || !row.tok_s) continue;
      const results::LoadLevel& level = report.setup.levels[static_cast<size_t>(row.level)];
      if (level.open()) continue;
      if (before != nullptr &&
          level.clients > report.setup.levels[static_cast<size_t>(before->level)].clients &&
          row.tok_s->value < kKneeGain * before->tok_s->value) {
        out.note(fmt::format("{}: saturated at {}; {} give {} of its tok/s",
                             load_server_name(report, row), load_level_name(report, *before),
                             load_level_name(report, row),
                             percent(row.tok_s->value / before->tok_s->value, 0)));
        break;
      }
      before = &row;
    }
  }
}

void add_load_warnings(const LoadReport& report, Document& out) {
  for (const LoadRow& row : report.rows) {
    const std::string where =
        fmt::format("{}, {}", load_server_name(report, row), load_level_name(report, row));
    if (row.failed > 0)
      out.note(fmt::format("{}: {} of {} requests failed, the first one: {}", where, row.failed,
                           row.requests, row.problem));
    if (row.saturated.value_or(false))
      out.note(fmt::format("{}: saturated: {} requests/s arrive, {} are served, {}", where,
                           number(row.offered_rps, 2), number(row.served_rps, 2),
                           row.failed == 0 ? "the queue grows" : "the queue grows or they fail"));
    if (row.late > 0)
      out.note(
          fmt::format("{}: {} of {} requests found no free client at their time and were sent "
                      "late; their latency counts from their time",
                      where, row.late, row.requests));
    if (row.client_cpu > kBusyClient)
      out.note(
          fmt::format("{}: the client itself took {} of a core: the server's figures may be "
                      "the client's",
                      where, percent(row.client_cpu, 0)));
    if (row.uncounted > 0)
      out.note(
          fmt::format("{}: {} of {} answers came without token counts of their pieces: no ITL "
                      "of them",
                      where, row.uncounted, row.requests));
  }
  for (size_t i = 0; i < report.setup.levels.size(); ++i) {
    const results::LoadLevel& level = report.setup.levels[i];
    const int block = report.setup.prompts / report.setup.slices[i];
    if (!level.open() && block < level.clients)
      out.note(
          fmt::format("{}: blocks of {} prompts keep fewer in flight", to_string(level), block));
  }
  for (const results::LoadServer& server : report.setup.servers)
    if (server.cache == "kept")
      out.note(fmt::format("{}: its prompt cache is left on, so a prompt asked before may be warm",
                           server.name));
  for (const results::LoadServer& server : report.setup.servers)
    if (!server.verified)
      out.note(fmt::format("{}: the client of this API was not run against the real server",
                           server.name));
  if (report.unfinished > 0)
    out.note(fmt::format("{} of blocks that did not end, in no figure",
                         base::plural(report.unfinished, "request")));
}

Json load_percentiles_json(const std::optional<LoadPercentiles>& p) {
  Json json;
  const auto add = [&](const std::string& name, LoadPercentile LoadPercentiles::*which) {
    json[name] = p ? Json(((*p).*which).value) : Json(nullptr);
    json[name + "_lo"] = p ? json_lo(((*p).*which).interval) : Json(nullptr);
    json[name + "_hi"] = p ? json_hi(((*p).*which).interval) : Json(nullptr);
  };
  add("p50", &LoadPercentiles::p50);
  add("p95", &LoadPercentiles::p95);
  add("p99", &LoadPercentiles::p99);
  return json;
}

void add_load_estimate(Json& json, const std::string& name, const std::optional<Estimate>& e) {
  json[name] = e ? json_value(e->value) : Json(nullptr);
  json[name + "_lo"] = e ? json_lo(e->interval) : Json(nullptr);
  json[name + "_hi"] = e ? json_hi(e->interval) : Json(nullptr);
}

Json load_row_json(const LoadReport& report, const LoadRow& row) {
  const results::LoadLevel& level = report.setup.levels[static_cast<size_t>(row.level)];
  Json json;
  json["server"] = load_server_name(report, row);
  json["clients"] = level.clients;
  json["rate"] = level.open() ? Json(level.rate) : Json(nullptr);
  json["blocks"] = row.blocks;
  json["requests"] = row.requests;
  json["failed"] = row.failed;
  json["problem"] = row.problem;
  json["late"] = row.late;
  json["retried"] = row.retried;
  json["uncounted"] = row.uncounted;
  json["wall_s"] = row.wall_s;
  json["client_cpu"] = row.client_cpu;
  json["in_flight"] = row.in_flight;
  add_load_estimate(json, "tok_s", row.tok_s);
  add_load_estimate(json, "req_s", row.req_s);
  json["full_tok_s"] = json_value(row.full_tok_s);
  add_load_estimate(json, "tok_s_ratio", row.tok_s_ratio);
  add_load_estimate(json, "tpot_ratio", row.tpot_ratio);
  json["ttft_ms"] = load_percentiles_json(row.ttft);
  json["tpot_ms"] = load_percentiles_json(row.tpot);
  json["itl_ms"] = load_percentiles_json(row.itl);
  json["gap_ms"] = load_percentiles_json(row.gap);
  json["stall_ms"] = load_percentiles_json(row.stall);
  json["latency_ms"] = load_percentiles_json(row.latency);
  json["longest_stall_ms"] = json_value(row.longest_stall_ms);
  json["offered_rps"] = json_value(row.offered_rps);
  json["served_rps"] = json_value(row.served_rps);
  json["saturated"] = row.saturated ? Json(*row.saturated) : Json(nullptr);
  json["good_rps"] = json_value(row.good_rps);
  json["good_share"] = json_value(row.good_share);
  json["good_share_lo"] = json_lo(row.good_interval);
  json["good_share_hi"] = json_hi(row.good_interval);
  json["alpha"] = json_value(row.alpha);
  add_load_estimate(json, "idle_ratio", row.idle_ratio);
  return json;
}

}  // namespace

Document document(const LoadReport& report) {
  const results::LoadSetup& setup = report.setup;
  Document out;
  out.name = "load";
  out.heading("Servers under load");
  out.paragraph(fmt::format("{}: {}, at most {} tokens each, {}; baseline {}", setup.tasks,
                            base::plural(setup.prompts, "prompt"), setup.max_new,
                            base::plural(setup.repeats, "repeat"), setup.servers.front().name));
  if (report.rows.empty()) {
    out.note("nothing measured yet");
    add_load_warnings(report, out);
    return out;
  }
  out.table(load_throughput_table(report));
  out.table(load_latency_table(report));
  add_load_knees(report, out);
  add_load_warnings(report, out);
  out.note(
      "Tokens are the server's own counts. ITL spreads the gap before a piece over its k tokens; "
      "gap counts it as k - 1 gaps of 0 and one. TTFT counts from the scheduled arrival");
  out.note(
      "Percentiles: intervals by prompts (bootstrap). Throughput and its ratio: by blocks. * = "
      "fewer "
      "than 20 of them of equal weight, indicative only",
      "docs/load.md");
  Json rows = Json::array();
  for (const LoadRow& row : report.rows) rows.push_back(load_row_json(report, row));
  out.data = records(rows);
  return out;
}

std::string to_json(const LoadReport& report) {
  const results::LoadSetup& setup = report.setup;
  Json json;
  json["tasks"] = setup.tasks;
  json["prompts"] = setup.prompts;
  json["max_new"] = setup.max_new;
  json["ignore_eos"] = setup.ignore_eos;
  json["repeats"] = setup.repeats;
  json["seed"] = setup.seed;
  json["retries"] = setup.retries;
  json["timeout_s"] = setup.timeout_s;
  json["slo"] = {{"ttft_ms", json_value(report.objective.ttft_ms)},
                 {"tpot_ms", json_value(report.objective.tpot_ms)}};
  json["servers"] = Json::array();
  for (const results::LoadServer& s : setup.servers)
    json["servers"].push_back({{"name", s.name},
                               {"spec", s.spec},
                               {"model", s.model},
                               {"cache", s.cache},
                               {"again", s.again},
                               {"verified", s.verified}});
  json["rows"] = Json::array();
  for (const LoadRow& row : report.rows) json["rows"].push_back(load_row_json(report, row));
  json["unfinished"] = report.unfinished;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evalrun::reports
