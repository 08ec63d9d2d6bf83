#include "results/judge_replies.h"

#include <filesystem>

#include "results/sqlite.h"

namespace evalrun::results {

namespace {

constexpr int kCacheBusyTimeoutMs = 10000;
constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS verdict ("
    "  judge TEXT NOT NULL,"
    "  prompt_hash TEXT NOT NULL,"
    "  answer_hash TEXT NOT NULL,"
    "  reply TEXT NOT NULL,"
    "  judged TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,"  // UTC
    "  PRIMARY KEY (judge, prompt_hash, answer_hash)"
    ") WITHOUT ROWID;";

}  // namespace

JudgeReplies::JudgeReplies(const std::string& path) : path_(path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const int code =
      sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  try {
    if (code != SQLITE_OK) throw_sqlite(db_, code, path_, "opening the verdicts");
    sqlite3_busy_timeout(db_, kCacheBusyTimeoutMs);
    run_script(db_, path_, kSchema, "opening the verdicts");
  } catch (...) {
    sqlite3_close(db_);
    throw;
  }
}

JudgeReplies::~JudgeReplies() { sqlite3_close(db_); }

std::optional<std::string> JudgeReplies::find(const JudgeReplyKey& key) const {
  const std::scoped_lock lock(mutex_);
  Statement s(db_, path_,
              "SELECT reply FROM verdict WHERE judge = ? AND prompt_hash = ? AND answer_hash = ?");
  s << key.judge << key.prompt_hash << key.answer_hash;
  if (!s.step()) return std::nullopt;
  return Row(s.get()).text(0);
}

void JudgeReplies::add(const JudgeReplyKey& key, const std::string& reply) {
  const std::scoped_lock lock(mutex_);
  Statement s(db_, path_,
              "INSERT OR IGNORE INTO verdict (judge, prompt_hash, answer_hash, reply) "
              "VALUES (?, ?, ?, ?)");
  s << key.judge << key.prompt_hash << key.answer_hash << reply;
  s.run();
}

int64_t JudgeReplies::size() const {
  const std::scoped_lock lock(mutex_);
  Statement s(db_, path_, "SELECT count(*) FROM verdict");
  return s.step() ? Row(s.get()).integer(0) : 0;
}

}  // namespace evalrun::results
