// Runs one foreign program where it can do no harm: bubblewrap (namespaces, read-only /usr, no
// network), our own PID 1 with resource limits, a seccomp filter, and a guard over the memory of
// the whole tree. How and why: docs/sandbox.md.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evaluators/sandbox/box_request.h"

namespace evalrun::evaluators {

struct SandboxOptions {
  bool allow_unsafe = false;                   // run unboxed when nothing else is possible
  std::vector<std::string> read_only_folders;  // shown at their own path, e.g. a rustup folder
};

class Sandbox {
 public:
  enum class Kind { kUserNamespace, kRoot, kNone };

  // Tries bubblewrap with user namespaces, then as root without; the first that runs `true` in a
  // complete box wins. Throws base::Error (kEnvironment) that says what to install or to enable;
  // with allow_unsafe an unboxed sandbox instead. `only` skips the others, for tests.
  static std::shared_ptr<Sandbox> open(const SandboxOptions& options,
                                       std::optional<Kind> only = {});
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  Kind kind() const { return kind_; }
  // As stored with every result: "bubblewrap", "bubblewrap-root", "none".
  const char* name() const;

  // A worker's place for one program at a time: a folder (in memory where possible) that only its
  // user may enter, and a user id nobody else has. Wiped when it goes.
  class Job {
   public:
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    // Throws base::Error when the disk is full.
    void write(const std::string& name, const std::string& bytes) const;
    // After compiling: removes everything but "program", which becomes a file that can be run and
    // not read, so that it cannot look for its own secrets.
    void keep_only_program() const;

   private:
    friend class Sandbox;
    explicit Job(Sandbox& sandbox);  // waits for a place when all are taken
    void release();
    Sandbox& sandbox_;
    int slot_;
    std::string folder_;
  };
  std::unique_ptr<Job> open_job();

  // Where the job's and the request's tool folder appear to the program: "/box" and "/tool", or the
  // real folders when nothing is boxed.
  std::string job_path(const Job& job) const;
  std::string tool_path(const std::string& tool_folder) const;

  // Never throws for what the program does. Thread-safe; one call per job at a time.
  BoxResult run(const Job& job, const BoxRequest& request);

  // Gives a folder that a job wrote (tool_writable) back to us.
  void reclaim(const std::string& folder) const;

 private:
  Sandbox(const SandboxOptions& options, Kind kind);
  std::vector<std::string> box_command(const Job& job, const BoxRequest& request) const;
  std::vector<std::string> bubblewrap(
      const Job& job, const BoxRequest& request,
      std::vector<std::pair<std::string, std::string>>& binds) const;
  unsigned uid_of(int slot) const;

  SandboxOptions options_;
  Kind kind_;
  std::string bwrap_, folder_, init_;
  int lock_ = -1;  // on folder_, as long as it is in use
  struct Slots;
  std::unique_ptr<Slots> slots_;
};

}  // namespace evalrun::evaluators
