#include "tests/gpu/report/markdown.h"

#include <fmt/format.h>

#include <iterator>

namespace evalrun::engine::gpu_report {
namespace {

double number(const Json& j, const char* key) { return j.at(key).get<double>(); }
double median(const Json& j, const char* key) { return number(j.at(key), "median"); }

template <typename... A>
void line(std::string& out, fmt::format_string<A...> format, A&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<A>(arguments)...);
  out += '\n';
}

std::string with_interval(const Json& s) {
  return fmt::format("{:.4f} ({:.4f} to {:.4f})", number(s, "median"), number(s, "lo"),
                     number(s, "hi"));
}

void device(std::string& out, const Json& d) {
  line(out, "| | |\n|---|---|");
  for (const auto& [key, value] : d.items())
    line(out, "| {} | {} |", key,
         value.is_string() ? value.get<std::string>()
         : value.is_null() ? "-"
                           : value.dump());
}

void steps(std::string& out, const Json& table) {
  line(out,
       "| rows | first, launched and captured, ms | second, ms | wall ms (95 %) | T(n)/T(1) | "
       "device ms (95 %) | T(n)/T(1) | host us | GB | floor ms | share of the floor reached | "
       "expected ms |\n|---|---|---|---|---|---|---|---|---|---|---|---|");
  const Json& one = table.front();
  for (const Json& s : table)
    line(out,
         "| {} | {:.2f} | {:.2f} | {} | {:.3f} | {} | {:.3f} | {:.1f} | {:.3f} | {:.4f} | {:.1f} % "
         "| {} |",
         s.at("rows").get<int>(), s.at("first_ms")[0].get<double>(),
         s.at("first_ms")[1].get<double>(), with_interval(s.at("wall_ms")),
         median(s, "wall_ms") / median(one, "wall_ms"), with_interval(s.at("device_ms")),
         median(s, "device_ms") / median(one, "device_ms"), number(s, "host_ms") * 1e3,
         number(s, "bytes") / 1e9, number(s, "floor_ms"), 100 * number(s, "share_of_floor"),
         s.contains("expected_ms") ? fmt::format("{:.3f}", number(s, "expected_ms")) : "-");
}

// `events_us`: what the events around a launch take.
void profile(std::string& out, const Json& p, double events_us) {
  const int rows = p.at("rows").get<int>();
  line(out, "\n### By kernel, {} row{}, context {}: {:.1f} us\n", rows, rows == 1 ? "" : "s",
       p.at("context").get<int>(), number(p, "us"));
  line(
      out,
      "| kernel | launches | us | share | MB it must read | GB/s | us without events | expected us "
      "|\n|---|---|---|---|---|---|---|---|");
  for (const Json& k : p.at("kernels")) {
    const bool known = k.contains("bytes");
    const int launches = k.at("launches").get<int>();
    line(out, "| `{}` | {} | {:.1f} | {:.1f} % | {} | {} | {:.1f} | {} |",
         k.at("kernel").get<std::string>(), launches, number(k, "us"), 100 * number(k, "share"),
         known ? fmt::format("{:.1f}", number(k, "bytes") / 1e6) : "-",
         known ? fmt::format("{:.0f}", number(k, "gb_per_s")) : "-",
         number(k, "us") - launches * events_us,
         k.contains("expected_us") ? fmt::format("{:.1f}", number(k, "expected_us")) : "-");
  }
}

// What was compared, and what was not.
void bit_identity(std::string& out, const Json& s) {
  if (!s.contains("bit_identity")) {
    line(out,
         "\n**Bit identity: not covered.** No rows of this shape were compared with the row "
         "alone.");
    return;
  }
  const Json& b = s.at("bit_identity");
  const int equal = b.at("equal").get<int>(), compared = b.at("compared").get<int>(),
            most = b.at("rows_of_a_step").get<int>();
  line(out,
       "\n**Bit identity: {}**, {} of {} rows (of steps of 1 to {} rows, trees and chains) have "
       "the logits of the row alone.",
       equal == compared ? "pass" : "FAIL", equal, compared, most);
  const int wide = b.at("layer_products").at("wide_product").get<int>(),
            narrow = b.at("layer_products").at("narrow_product").get<int>();
  line(out, "Products of its layers at {} rows: {} by `wide_product`, {} by `narrow_product`.{}",
       most, wide, narrow,
       wide == 0 ? " So `wide_product` in a layer is not covered by this shape." : "");
}

// Times of one shape. `peak` and `events_us`: of the whole report.
void shape_times(std::string& out, const Json& s, const Json& peak, double events_us) {
  if (s.contains("layers"))
    line(out, "{} layers, {} of them distinct in memory; {:.2f} GB read a step without a context.",
         s.at("layers").get<int>(), s.at("distinct_layers").get<int>(),
         s.contains("bytes") ? number(s.at("bytes"), "weights") / 1e9 : 0.0);
  if (s.contains("clocks"))
    for (const auto& [when, text] : s.at("clocks").items())
      line(out, "Clocks {}: {}.", when, text.get<std::string>());
  if (s.contains("decoding")) {
    line(out, "\n### Plain decoding, forward and commit\n");
    line(out, "| tokens | wall ms a token (95 %) |\n|---|---|");
    for (const auto& [how, ms] : s.at("decoding").items())
      line(out, "| {} | {} |", how, with_interval(ms));
  }
  if (s.contains("verification")) {
    line(out, "\n### Verification by what is asked of it, forward alone\n");
    line(out, "| step | wall ms (95 %) |\n|---|---|");
    for (const auto& [what, ms] : s.at("verification").items())
      line(out, "| {} | {} |", what, with_interval(ms));
  }
  if (s.contains("heads")) {
    line(out, "\n### A look of drafting heads, one residual block each (caches are warm)\n");
    line(out, "| look | wall ms (95 %) | floor ms |\n|---|---|---|");
    for (const auto& [what, ms] : s.at("heads").items())
      line(out, "| {} | {} | {:.3f} |", what, with_interval(ms), number(ms, "floor_ms"));
  }
  if (s.contains("all_logits")) {
    line(out,
         "\n### Rows of a tree, context {}, logits of all (more than two rows' stay on the device "
         "until they are looked at)\n",
         s.at("all_logits").front().at("context").get<int>());
    steps(out, s.at("all_logits"));
  }
  if (s.contains("top_only")) {
    line(out, "\n### The same, only the likeliest token of each row\n");
    steps(out, s.at("top_only"));
  }
  if (s.contains("sixteen_rows_across"))
    line(out, "\n16 rows with products over several thread blocks from 9 rows on: {} ms device.",
         with_interval(s.at("sixteen_rows_across").at("device_ms")));
  if (s.contains("long_context")) {
    line(out, "\n### One row at context {}\n", s.at("long_context").at("context").get<int>());
    steps(out, Json::array({s.at("long_context")}));
  }
  if (s.contains("attention")) {
    const Json& a = s.at("attention");
    line(
        out,
        "\nAttention at context {} (`attend_chunk` and `merge_chunks`): {:.1f} us, {:.1f} % of the "
        "kernels' time, {:.2f} times the floor of its {:.1f} MB ({:.1f} us).",
        a.at("context").get<int>(), number(a, "us"), 100 * number(a, "share_of_step"),
        number(a, "times_floor"), number(a, "bytes") / 1e6, number(a, "floor_us"));
  }
  if (s.contains("prefill")) {
    const Json& p = s.at("prefill");
    const double most = number(peak, "flops_per_s") / 1e12;
    line(out,
         "\nPrefill of {} tokens ({} cuBLAS): {} ms, {:.1f} TFLOP/s of the layers' products{}.",
         p.at("tokens").get<int>(), p.at("cublas").get<bool>() ? "with" : "without",
         with_interval(p.at("ms")), number(p, "tflops"),
         most > 0 ? fmt::format(", {:.1f} % of the dense peak", 100 * number(p, "tflops") / most)
                  : "");
    std::string parts;
    for (const Json& k : p.at("kernels"))
      parts += fmt::format("{}{} {:.2f}", parts.empty() ? "" : ", ",
                           k.at("kernel").get<std::string>(), number(k, "ms"));
    line(out, "By kernel, launch by launch, without cuBLAS's own (ms): {}.", parts);
    if (p.contains("at_once_ms"))
      line(out, "With attention's running sums instead of partial results: {} ms.",
           with_interval(p.at("at_once_ms")));
  }
  if (s.contains("profiles"))
    for (const Json& p : s.at("profiles")) profile(out, p, events_us);
}

void predicted_bits(std::string& out, const Json& p) {
  if (p.empty()) return;
  line(out, "\n{}\n", predicted_bits_line(p));
  if (!p.contains("cases")) return;
  line(out, "Predicted on the emulated device: {}.", p.at("made_from").get<std::string>());
  for (const Json& c : p.at("cases")) {
    const std::string name = c.at("case").get<std::string>();
    if (c.contains("first"))
      line(out, "- {}: {} of {} rows as predicted. First other: {}.", name,
           c.at("equal").get<int>(), c.at("compared").get<int>(), c.at("first").get<std::string>());
    if (c.contains("why_not"))
      line(out, "- {}: not compared: {}", name, c.at("why_not").get<std::string>());
  }
}

void bandwidths(std::string& out, const Json& report) {
  line(out,
       "\nCopy bandwidth: **{:.1f} GB/s** (copy of {:.2f} GiB from device to device, bytes read "
       "and written, best of 10).",
       number(report.at("copy"), "bytes_per_s") / 1e9, number(report.at("copy"), "bytes") / 0x1p30);
  line(out, "Read bandwidth: **{:.1f} GB/s** (the same bytes read once, best of 10).",
       number(report.at("read"), "bytes_per_s") / 1e9);
  const Json& peak = report.at("dense_peak");
  if (number(peak, "flops_per_s") > 0)
    line(out, "Dense bf16 peak: **{:.0f} TFLOP/s** (cuBLAS, {} x {} x {}, best of 10).",
         number(peak, "flops_per_s") / 1e12, peak.at("n").get<int>(), peak.at("n").get<int>(),
         peak.at("n").get<int>());
  else
    line(out, "Dense bf16 peak: not measured, there is no cuBLAS.");
}

void how_timed(std::string& out, const Json& report) {
  line(
      out,
      "\nWall time: what a caller of a forward waits, as a graph. Device time: that graph alone, "
      "its copies from and to the host included, after reads that empty the caches. Host: "
      "wall less device (whose caches were emptied, so it is low where a model fits the L2). "
      "Medians with the 95 % interval of the median. Floor: bytes of weights "
      "and of the context's keys and values / copy bandwidth; its share is of the device time. "
      "T(n)/T(1) is the cost curve a method with n rows a step pays. Times by kernel: launch by "
      "launch after reads that hide the host, each with the two events around it: {:.1f} us of "
      "every launch are theirs. Expected: what a model of bytes, instructions and round trips says "
      "of {} multiprocessors at {:.2f} GHz, the read bandwidth and the dense peak above "
      "(tests/gpu/report/expected_times.h): a prediction, not a goal.",
      number(report, "empty_span_us"), report.at("expected_for").at("multiprocessors").get<int>(),
      number(report.at("expected_for"), "ghz"));
}

}  // namespace

std::string predicted_bits_line(const Json& p) {
  const std::string head = fmt::format("**Predicted bits ({}): ", p.at("model").get<std::string>());
  if (!p.contains("cases")) return head + "none**, no model of these tensor cores is known.";
  int compared = 0, equal = 0, cases = 0;
  const Json* first = nullptr;
  for (const Json& c : p.at("cases")) {
    compared += c.at("compared").get<int>(), equal += c.at("equal").get<int>();
    cases += c.contains("why_not") ? 0 : 1;
    if (first == nullptr && c.contains("first")) first = &c;
  }
  const std::string counts =
      fmt::format("{} of {} rows of {} of {} cases", equal, compared, cases, p.at("cases").size());
  if (first != nullptr)
    return fmt::format("{}OTHERS**, {} are as predicted. First other: {}, {}.", head, counts,
                       first->at("case").get<std::string>(), first->at("first").get<std::string>());
  if (compared == 0) return head + "not compared**, for reasons by case.";
  return fmt::format("{}as predicted**, {}.", head, counts);
}

std::string markdown(const Json& report) {
  // The parts of one that was made part by part are put together: the device is said once.
  const std::string only = report.at("only").get<std::string>();
  const bool timed = report.contains("copy");
  std::string out;
  line(out, "# GPU report{}{}\n", only.empty() ? "" : ": " + only,
       report.at("part") == "1/1" ? "" : ", part " + report.at("part").get<std::string>());
  line(out, "{}, commit {}, {:.0f} s.", report.at("date").get<std::string>(),
       report.at("commit").get<std::string>(), number(report, "seconds"));
  if (only.empty() || timed) {
    line(out, "");
    device(out, report.at("device"));
  }
  if (timed) bandwidths(out, report);
  predicted_bits(out, report.at("predicted_bits"));
  if (timed) how_timed(out, report);
  for (const Json& s : report.at("shapes")) {
    line(out, "\n## {}\n", s.at("shape").get<std::string>());
    if (timed) shape_times(out, s, report.at("dense_peak"), number(report, "empty_span_us"));
    if (only != "times") bit_identity(out, s);
  }
  if (!report.at("not_measured").empty()) {
    line(out, "\n## Not measured\n");
    for (const Json& n : report.at("not_measured"))
      line(out, "- {}: {}", n.at("what").get<std::string>(), n.at("why").get<std::string>());
  }
  return out;
}

}  // namespace evalrun::engine::gpu_report
