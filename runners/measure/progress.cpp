#include "runners/measure/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"

namespace evalrun::runners {
namespace {

// Whole seconds: a line that is written over and over should not change its width.
std::string whole(double seconds) { return base::format_duration(std::round(seconds)); }

}  // namespace

void ConsoleProgress::left_out(const std::string& method) {
  fmt::print(out_, "left out: {}\n", method);
}

void ConsoleProgress::hopeless(const std::string& why) { fmt::print(out_, "warning: {}\n", why); }

void ConsoleProgress::warming_up(const std::string& arm) {
  show(fmt::format("warming up: {}", arm), false);
}

void ConsoleProgress::begin(int pending, int already_stored) {
  pending_ = pending;
  stored_ = already_stored;
  done_ = failed_ = 0;  // `check` measures several runs in sequence
  start_ns_ = clock_.now_ns();
  show(already_stored > 0
           ? fmt::format("{} generations to measure, {} already stored", pending, already_stored)
           : fmt::format("{} generations to measure", pending),
       true);
}

void ConsoleProgress::generation_done(const std::string& arm, const std::string& prompt,
                                      bool failed) {
  ++done_;
  failed_ += failed ? 1 : 0;
  const double elapsed = static_cast<double>(clock_.now_ns() - start_ns_) * 1e-9;
  const double left = elapsed / done_ * (pending_ - done_);
  show(fmt::format("[{}/{}] {} elapsed, {} left{}  {}  {}", stored_ + done_, stored_ + pending_,
                   whole(elapsed), whole(left),
                   failed_ > 0 ? fmt::format(", {} FAILED", failed_) : "", prompt, arm),
       done_ == pending_);
}

void ConsoleProgress::scoring(int done, int total, double elapsed_s, double left_s) {
  show(fmt::format("scoring [{}/{}] {} elapsed, {} left", done, total, whole(elapsed_s),
                   whole(left_s)),
       done == total);
}

void ConsoleProgress::capturing(int64_t done, int64_t total, int64_t tokens, double elapsed_s,
                                double left_s) {
  show(fmt::format("[{}/{}] {} elapsed, {} left, {:.0f} tokens/s", done, total, whole(elapsed_s),
                   whole(left_s), elapsed_s > 0 ? static_cast<double>(tokens) / elapsed_s : 0.0),
       done == total);
}

void ConsoleProgress::working(const std::string& what, double share_done, double elapsed_s) {
  const double left = share_done > 0 ? elapsed_s / share_done * (1 - share_done) : 0;
  show(fmt::format("[{:.0f} %] {} elapsed, {} left  {}", 100 * share_done, whole(elapsed_s),
                   whole(left), what),
       share_done >= 1);
}

void ConsoleProgress::end() {
  if (terminal_ && last_width_ > 0) fmt::print(out_, "\n");
  std::fflush(out_);
  last_width_ = 0;
}

void ConsoleProgress::show(const std::string& line, bool force) {
  constexpr int64_t kTerminalNs = 100'000'000, kLogNs = 10'000'000'000;
  const int64_t now = clock_.now_ns();
  if (!force && last_shown_ns_ != 0 && now - last_shown_ns_ < (terminal_ ? kTerminalNs : kLogNs))
    return;
  last_shown_ns_ = now;
  if (terminal_) {
    // Blanks wipe what is left of a longer line before.
    const size_t width = std::max(line.size(), last_width_);
    fmt::print(out_, "\r{:<{}}", line, width);
    last_width_ = line.size();
  } else {
    fmt::print(out_, "{}\n", line);
  }
  std::fflush(out_);
}

}  // namespace evalrun::runners
