// evalrun show ID: one generation step by step, or the summary of a run.
//
// ID is the number of a generation, "run:N", or the label or key of a run. Token texts come from
// the model's tokenizer when it is at hand and fits the stored text; otherwise ids are shown.
#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>

#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/tokenizer/tokenizer.h"
#include "results/store.h"
#include "runners/cli/cli.h"
#include "runners/cli/given_options.h"
#include "runners/cli/load_tokenizer.h"
#include "runners/cli/output.h"
#include "runners/cli/results/show_data.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShowArguments {
  std::string id, model, diff;
};

// Text of tokens for people: quoted, control characters escaped.
class TokenPrinter {
 public:
  TokenPrinter(const std::string& model, const ShownGeneration& generation) {
    try {
      ModelOptions options;
      options.model = model;
      tokenizer_ = load_tokenizer(options.path());
    } catch (const base::Error&) {
      if (!model.empty()) throw;  // asked for by name; the default one is only a convenience
      return;
    }
    for (const ShownTurn& turn : generation.turns)
      if (!fits(turn)) tokenizer_.reset();
  }
  bool has_text() const { return tokenizer_ != nullptr; }
  std::string text(std::span<const int32_t> ids) const {
    std::string out;
    for (const int32_t id : ids) {
      if (tokenizer_)
        out += tokenizer_->token_bytes(id);
      else
        out += (out.empty() ? "" : " ") + std::to_string(id);
    }
    return tokenizer_ ? quoted(out) : out;
  }

 private:
  static std::string quoted(const std::string& bytes) {
    return Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  bool fits(const ShownTurn& turn) const {
    if (!tokenizer_) return false;
    for (const int32_t id : turn.tokens)
      if (id >= tokenizer_->vocab_size()) return false;
    return tokenizer_->decode(turn.tokens, true) == turn.text;
  }
  std::shared_ptr<const engine::Tokenizer> tokenizer_;
};

std::span<const int32_t> slice(const std::vector<int32_t>& tokens, size_t begin, size_t count) {
  begin = std::min(begin, tokens.size());
  return std::span(tokens).subspan(begin, std::min(count, tokens.size() - begin));
}

Json step_json(const results::StepRecord& s, std::span<const int32_t> emitted) {
  return {{"rows", s.rows},
          {"drafted", s.drafted},
          {"drafted_depth", s.drafted_depth},
          {"accepted", s.accepted},
          {"emitted", s.emitted},
          {"target_forwards", s.target_forwards},
          {"tokens", std::vector<int32_t>(emitted.begin(), emitted.end())},
          {"draft_ns", s.draft_ns},
          {"verify_ns", s.verify_ns},
          {"commit_ns", s.commit_ns},
          {"other_ns", s.other_ns}};
}

Json divergences_json(const ShownTurn& turn) {
  Json list = Json::array();
  for (const results::DivergenceRecord& d : turn.divergences)
    list.push_back({{"index", d.index},
                    {"expected", d.expected},
                    {"found", d.found},
                    {"gap", d.gap ? Json(*d.gap) : Json()},
                    {"spacing", d.spacing}});
  return list;
}

Json clock_json(const std::optional<results::ClockRecord>& c) {
  if (!c) return {};
  return {{"device_mhz", c->device_mhz ? Json(*c->device_mhz) : Json()},
          {"available_ns", c->available_ns},
          {"own_ns", c->own_ns},
          {"others_ns", c->others_ns},
          {"steal_ns", c->steal_ns},
          {"preempted", c->preempted},
          {"energy_mj", c->energy_mj ? Json(*c->energy_mj) : Json()}};
}

Json gpu_json(const std::optional<results::GpuRecord>& g) {
  if (!g) return {};
  Json out = {{"temperature_c", g->temperature_c ? Json(*g->temperature_c) : Json()},
              {"power_w", g->power_w ? Json(*g->power_w) : Json()},
              {"energy_mj", g->energy_mj ? Json(*g->energy_mj) : Json()},
              {"slowed_by", g->slowed_by},
              {"busy", Json()}};
  if (g->busy)
    out["busy"] = {
        {"prefill_ns", g->busy->prefill_ns}, {"draft_prefill_ns", g->busy->draft_prefill_ns},
        {"draft_ns", g->busy->draft_ns},     {"verify_ns", g->busy->verify_ns},
        {"commit_ns", g->busy->commit_ns},   {"graph_misses", g->busy->graph_misses}};
  return out;
}

Json generation_json(const ShownGeneration& g) {
  Json turns = Json::array();
  for (const ShownTurn& turn : g.turns) {
    Json steps = Json::array();
    size_t at = 1;  // token 0 was read from the prefill
    for (const results::StepRecord& s : turn.steps) {
      steps.push_back(step_json(s, slice(turn.tokens, at, static_cast<size_t>(s.emitted))));
      at += static_cast<size_t>(s.emitted);
    }
    Json nodes = Json::array();
    for (const results::NodeCount& n : turn.nodes)
      nodes.push_back(
          {{"depth", n.depth}, {"rank", n.rank}, {"tested", n.tested}, {"accepted", n.accepted}});
    turns.push_back({{"prompt_tokens", turn.n_prompt_tokens},
                     {"tokens", turn.tokens},
                     {"text", turn.text},
                     {"stop", turn.stop},
                     {"prefill_ns", turn.prefill_ns},
                     {"draft_prefill_ns", turn.draft_prefill_ns},
                     {"decode_ns", turn.decode_ns},
                     {"batch", batch_json(turn)},
                     {"steps", steps},
                     {"nodes", nodes},
                     {"divergences", divergences_json(turn)}});
  }
  Json scores = Json::array();
  for (const results::ScoreRecord& s : g.scores)
    scores.push_back({{"evaluator", s.evaluator},
                      {"version", s.version},
                      {"value", s.value ? Json(*s.value) : Json()},
                      {"extracted", s.extracted},
                      {"status", s.status},
                      {"detail", s.detail},
                      {"suspicious", s.suspicious},
                      {"facts", Json::parse(s.facts, nullptr, false)}});
  return {{"id", g.id},
          {"run", g.run_id},
          {"arm", g.arm_label},
          {"task", g.task},
          {"prompt", g.prompt},
          {"repeat", g.repeat},
          {"sample", g.sample},
          {"status", g.status},
          {"fault", g.fault},
          {"block", g.block},
          {"slot", g.slot},
          {"total_ns", g.total_ns},
          {"turns", turns},
          {"scores", scores},
          {"degenerate", g.degenerate},
          {"replay_asked", g.asked ? Json(*g.asked) : Json()},
          {"clock", clock_json(g.clock)},
          {"gpu", gpu_json(g.gpu)}};
}

// Below the status: what the machine did, as far as it is known.
void print_machine(const ShownGeneration& g) {
  const auto time = [](int64_t ns) {
    return base::format_duration(1e-9 * static_cast<double>(ns));
  };
  if (g.clock) {
    const results::ClockRecord& c = *g.clock;
    print_line(fmt::format(
        "processor: {} for this process, {} for others, {} for other guests, of {} (wall time x "
        "cores); preempted {} times{}{}",
        time(c.own_ns), time(c.others_ns), time(c.steal_ns), time(c.available_ns), c.preempted,
        c.device_mhz ? fmt::format("; clock {:.2f} GHz", *c.device_mhz / 1000) : "",
        c.energy_mj ? fmt::format("; {:.2f} J", static_cast<double>(*c.energy_mj) / 1e3) : ""));
  }
  if (!g.gpu) return;
  const results::GpuRecord& gpu = *g.gpu;
  std::vector<std::string> parts;
  if (gpu.busy) {
    const results::GpuBusy& b = *gpu.busy;
    parts.push_back(
        fmt::format("busy {} with prefill, {} draft prefill, {} draft, {} verify, {} commit",
                    time(b.prefill_ns), time(b.draft_prefill_ns), time(b.draft_ns),
                    time(b.verify_ns), time(b.commit_ns)));
    if (b.graph_misses > 0) parts.push_back(fmt::format("{} CUDA graphs made", b.graph_misses));
  }
  if (gpu.energy_mj)
    parts.push_back(fmt::format("{:.2f} J", static_cast<double>(*gpu.energy_mj) / 1e3));
  if (gpu.power_w) parts.push_back(fmt::format("{:.0f} W", *gpu.power_w));
  if (gpu.temperature_c) parts.push_back(fmt::format("{:.0f} C", *gpu.temperature_c));
  if (!gpu.slowed_by.empty()) parts.push_back("clock held down by " + gpu.slowed_by);
  if (!parts.empty()) print_line(fmt::format("GPU: {}", fmt::join(parts, "; ")));
}

void print_generation(const ShownGeneration& g, const TokenPrinter& tokens) {
  print_line(fmt::format(
      "generation {}: run {}, arm {}, {} {}, repeat {}, sample {}, block {}, slot {}", g.id,
      g.run_id, g.arm_label, g.task, g.prompt, g.repeat, g.sample, g.block, g.slot));
  print_line(fmt::format("status: {}{}, total {}", g.status,
                         g.fault.empty() ? "" : fmt::format(" (planted fault {})", g.fault),
                         base::format_duration(1e-9 * static_cast<double>(g.total_ns))));
  if (g.degenerate)
    print_line("the answer runs in a loop, which every drafter predicts (docs/measurement.md)");
  if (g.asked) {
    size_t differing = 0;
    for (const ShownTurn& turn : g.turns) differing += turn.divergences.size();
    print_line(
        fmt::format("replay of the reference arm's text: of {} places the method would have gone "
                    "on otherwise at {}",
                    *g.asked, differing));
  }
  print_machine(g);
  if (!tokens.has_text())
    print_line("tokens are shown as ids: give the run's model with -m to see text");
  for (size_t t = 0; t < g.turns.size(); ++t) {
    const ShownTurn& turn = g.turns[t];
    print_line(
        fmt::format("\nturn {}: {} prompt tokens, {} emitted, stopped by {}; prefill {}, draft "
                    "prefill {}, decode {}",
                    t + 1, turn.n_prompt_tokens, turn.tokens.size(), turn.stop,
                    base::format_duration(1e-9 * static_cast<double>(turn.prefill_ns)),
                    base::format_duration(1e-9 * static_cast<double>(turn.draft_prefill_ns)),
                    base::format_duration(1e-9 * static_cast<double>(turn.decode_ns))));
    if (turn.batch) print_line(batch_text(turn));
    std::vector<std::vector<std::string>> rows;
    rows.push_back(
        {"prefill", "", "", "", "", "", "", "", "", "", tokens.text(slice(turn.tokens, 0, 1))});
    size_t at = 1;
    for (size_t i = 0; i < turn.steps.size(); ++i) {
      const results::StepRecord& s = turn.steps[i];
      const auto accepted = static_cast<size_t>(s.accepted);
      const auto emitted = static_cast<size_t>(s.emitted);
      const auto ms = [](int64_t ns) {
        return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6);
      };
      rows.push_back({std::to_string(i + 1), std::to_string(s.rows), std::to_string(s.drafted),
                      std::to_string(s.accepted), std::to_string(s.emitted), ms(s.draft_ns),
                      ms(s.verify_ns), ms(s.commit_ns), ms(s.other_ns),
                      accepted > 0 ? tokens.text(slice(turn.tokens, at, accepted)) : "",
                      emitted > accepted ? tokens.text(slice(turn.tokens, at + accepted, 1)) : ""});
      at += emitted;
    }
    const auto undrafted =
        std::count_if(turn.steps.begin(), turn.steps.end(),
                      [](const results::StepRecord& s) { return s.drafted == 0; });
    print_line(fmt::format("nothing drafted in {} of {} steps", undrafted, turn.steps.size()));
    print_line(
        aligned_table({"step", "rows", "drafted", "accepted", "emitted", "draft ms", "verify ms",
                       "commit ms", "other ms", "accepted text", "target's own"},
                      rows));
    for (const results::DivergenceRecord& d : turn.divergences)
      print_line(fmt::format("token {}: {} instead of {}{}", d.index, tokens.text({&d.found, 1}),
                             tokens.text({&d.expected, 1}),
                             d.gap ? fmt::format(", logits {:.4g} apart ({:.2g} is the spacing of "
                                                 "the number format there)",
                                                 *d.gap, d.spacing)
                                   : ""));
  }
  for (const results::ScoreRecord& s : g.scores)
    print_line(fmt::format("\n{}@{}: {}{}{}{}, extracted '{}'", s.evaluator, s.version,
                           s.value ? fmt::format("{}, ", *s.value) : "", s.status,
                           s.detail.empty() ? "" : fmt::format(" ({})", s.detail),
                           s.suspicious ? ", suspicious" : "", s.extracted));
}

// First place where two generations of the same prompt differ.
struct Divergence {
  size_t turn = 0, index = 0;
};
std::optional<Divergence> first_divergence(const ShownGeneration& a, const ShownGeneration& b) {
  for (size_t t = 0; t < std::max(a.turns.size(), b.turns.size()); ++t) {
    if (t >= a.turns.size() || t >= b.turns.size()) return Divergence{t, 0};
    const std::vector<int32_t>&x = a.turns[t].tokens, &y = b.turns[t].tokens;
    const auto [i, j] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (i != x.end() || j != y.end()) return Divergence{t, static_cast<size_t>(i - x.begin())};
  }
  return std::nullopt;
}

Json diff_json(const ShownGeneration& g, const ShownGeneration& other) {
  const auto place = first_divergence(g, other);
  Json out{{"against", other.id}, {"arm", other.arm_label}, {"identical", !place.has_value()}};
  if (!place) return out;
  const auto token = [&](const ShownGeneration& x) {
    const bool there =
        place->turn < x.turns.size() && place->index < x.turns[place->turn].tokens.size();
    return there ? Json(x.turns[place->turn].tokens[place->index]) : Json();
  };
  out["turn"] = place->turn + 1;
  out["index"] = place->index;
  out["token"] = token(g);
  out["other_token"] = token(other);
  return out;
}

void print_diff(const ShownGeneration& g, const ShownGeneration& other,
                const TokenPrinter& tokens) {
  const auto place = first_divergence(g, other);
  if (!place)
    return print_line(
        fmt::format("\nidentical to generation {} ({}): the same token ids in every turn", other.id,
                    other.arm_label));
  print_line(fmt::format("\nfirst difference from generation {} ({}): turn {}, token {}", other.id,
                         other.arm_label, place->turn + 1, place->index));
  const auto side = [&](const ShownGeneration& x) {
    constexpr size_t kContext = 12, kAfter = 8;
    if (place->turn >= x.turns.size()) return std::string("(no such turn)");
    const std::vector<int32_t>& ids = x.turns[place->turn].tokens;
    const size_t begin = place->index > kContext ? place->index - kContext : 0;
    const std::string after = tokens.text(slice(ids, place->index, kAfter));
    return fmt::format("{} | {}", tokens.text(slice(ids, begin, place->index - begin)),
                       place->index < ids.size() ? after : "(ended)");
  };
  print_line(fmt::format("  {}: {}\n  {}: {}", g.arm_label, side(g), other.arm_label, side(other)));
  print_line(
      "  the logits there: evalrun generate --top-logits 5 on this prompt with both methods");
}

void show_run(const ShowArguments& options, const GlobalOptions& global) {
  const RunReference found = find_run(options.id, global.db);
  const ShownRun run = read_run(*found.store, found.run_id);
  if (global.json) return print_json_document(run_json(run));
  print_line(run_text(run));
}

bool is_number(const std::string& id) {
  return !id.empty() &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

void run_show(const ShowArguments& options, const GlobalOptions& global) {
  if (!is_number(options.id)) return show_run(options, global);

  const auto store_ptr = open_results(global.db);
  const results::ResultStore& store = *store_ptr;
  const ShownGeneration g = read_generation(store, parse_id(options.id));
  std::optional<ShownGeneration> other;
  if (!options.diff.empty())
    other = read_generation(store, find_counterpart(store, g, options.diff));
  if (global.json) {
    Json out = generation_json(g);
    if (other) out["diff"] = diff_json(g, *other);
    return print_json_document(out);
  }
  const TokenPrinter tokens(options.model, g);
  print_generation(g, tokens);
  if (other) print_diff(g, *other, tokens);
}

}  // namespace

void add_show_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("show", "One generation step by step, or a run's summary");
  auto options = std::make_shared<ShowArguments>();
  command->add_option("id", options->id, "Number of a generation, run:N, or a run's label")
      ->required();
  command->add_option("-m,--model", options->model,
                      "Model whose tokenizer turns ids into text (default: the default model)");
  command
      ->add_option("--diff", options->diff,
                   "Arm to compare with (AR = plain decoding of the same model): first token that "
                   "differs")
      ->type_name("ARM");
  command->footer(
      "Examples:\n"
      "  evalrun show run:1\n"
      "  evalrun show 17\n"
      "  evalrun show 17 --diff AR");
  command->callback([options, command, &context] {
    if (!is_number(options->id))
      refuse_given(*command, {"--model", "--diff"}, "the summary of a run");
    if (context.global.json) refuse_given(*command, {"--model"}, "--json, which gives token ids");
    run_show(*options, context.global);
  });
}

}  // namespace evalrun::cli
