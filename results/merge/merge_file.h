// The file that a merge is written into: beside its target, one merge at a time. Internal to
// results/merge/.
#pragma once
#include <sqlite3.h>

#include <string>

namespace evalrun::results {

// TARGET.merging, for one process at a time. What an earlier merge left behind is removed.
class MergeFile {
 public:
  // Throws data_error: another merge is at work, the folder cannot be written, the target is open
  // in another process.
  explicit MergeFile(const std::string& target);
  ~MergeFile();  // without put_in_place(): the target is as it was
  MergeFile(const MergeFile&) = delete;
  MergeFile& operator=(const MergeFile&) = delete;

  const std::string& path() const { return path_; }
  // The file's connection must be closed. Synced, then renamed.
  void put_in_place();

 private:
  void lock();
  void hold_target();

  std::string target_, path_, lock_path_;
  int lock_ = -1;
  sqlite3* held_ = nullptr;  // the old target: nobody writes to it meanwhile
};

}  // namespace evalrun::results
