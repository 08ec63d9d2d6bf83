// What a user sees on stderr while a run measures.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/base/clock.h"

namespace evalrun::runners {

class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // An optional method of the suite that lacks what it needs, with the reason.
  virtual void left_out(const std::string& /*method*/) {}
  // Before anything is measured: why an arm is not worth it.
  virtual void hopeless(const std::string& /*why*/) {}
  virtual void warming_up(const std::string& /*arm*/) {}
  virtual void begin(int /*pending*/, int /*already_stored*/) {}
  virtual void generation_done(const std::string& /*arm*/, const std::string& /*prompt*/,
                               bool /*failed*/) {}
  // Answers judged after the timed generations.
  virtual void scoring(int /*done*/, int /*total*/, double /*elapsed_s*/, double /*left_s*/) {}
  // Work of many kinds, in units of about equal time: `what` is under way.
  virtual void working(const std::string& /*what*/, double /*share_done*/, double /*elapsed_s*/) {}
  virtual void end() {}
};

// A terminal gets one line that is rewritten; anything else gets a line about every ten seconds.
class ConsoleProgress final : public ProgressSink {
 public:
  ConsoleProgress(std::FILE* out, bool is_terminal, base::Clock& clock)
      : out_(out), terminal_(is_terminal), clock_(clock) {}
  void left_out(const std::string& method) override;
  void hopeless(const std::string& why) override;
  void warming_up(const std::string& arm) override;
  void begin(int pending, int already_stored) override;
  void generation_done(const std::string& arm, const std::string& prompt, bool failed) override;
  void scoring(int done, int total, double elapsed_s, double left_s) override;
  void working(const std::string& what, double share_done, double elapsed_s) override;
  void end() override;
  // Sequences decoded in parallel (evalrun capture); `tokens` are generated ones.
  void capturing(int64_t done, int64_t total, int64_t tokens, double elapsed_s, double left_s);

 private:
  void show(const std::string& line, bool force);
  std::FILE* out_;
  bool terminal_;
  base::Clock& clock_;
  int pending_ = 0, stored_ = 0, done_ = 0, failed_ = 0;
  int64_t start_ns_ = 0, last_shown_ns_ = 0;
  size_t last_width_ = 0;
};

}  // namespace evalrun::runners
