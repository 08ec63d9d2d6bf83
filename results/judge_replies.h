// Replies of judges, kept so that an identical answer is never judged twice: a file of its own
// beside the result databases, because the same answer turns up in many runs.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

struct sqlite3;

namespace evalrun::results {

// What a reply depends on. The hashes are SHA-256: of everything in the prompt but the answers, and
// of the answers.
struct JudgeReplyKey {
  std::string judge;  // model and settings: "gpt-4-0613 temperature=0 max_tokens=2048"
  std::string prompt_hash, answer_hash;
};

class JudgeReplies {
 public:
  // Opens or creates. Throws data_error: no database, another one, no permission, no space.
  explicit JudgeReplies(const std::string& path);
  ~JudgeReplies();
  JudgeReplies(const JudgeReplies&) = delete;
  JudgeReplies& operator=(const JudgeReplies&) = delete;

  // Both may be called from several threads.
  std::optional<std::string> find(const JudgeReplyKey& key) const;
  // The first reply stays when another process was faster.
  void add(const JudgeReplyKey& key, const std::string& reply);
  int64_t size() const;

 private:
  std::string path_;
  sqlite3* db_ = nullptr;
  mutable std::mutex mutex_;
};

}  // namespace evalrun::results
