// A result database on a disk of this machine, and its copy on a shared one. SQLite's locks do not
// hold on every shared file system, and a commit there is slow: so a run writes to a local disk
// alone, and its copy is a whole file that is put in place by a rename. A reader of the copy sees
// the old one or the new one.
#pragma once
#include <string>

namespace evalrun::runners {

// A consistent copy of `database` as of now, while others may have it open and go on writing. Not
// for two processes with the same `copy`: the later one would win. Throws data_error.
void copy_database(const std::string& database, const std::string& copy);

enum class Restored { kNothing, kCopied };
// Before a run opens `database`: takes over the copy where it holds more generations, which it does
// on a machine that is new to the shard. Throws data_error for a copy that is no result database,
// and where the file that would give way holds a run that the other one does not.
Restored restore_database(const std::string& copy, const std::string& database);

}  // namespace evalrun::runners
