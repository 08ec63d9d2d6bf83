// Commits of several sequences after one forward.
#pragma once
#include <span>

#include "engine/session.h"

namespace evalrun::methods {

// Rows of the last forward that are appended to a sequence.
struct SequencePath {
  int sequence = 0;
  std::span<const int> path;
};
inline void commit_paths(engine::Session& session, std::span<const SequencePath> paths) {
  for (const SequencePath& p : paths) session.commit(p.path, p.sequence);
}

}  // namespace evalrun::methods
