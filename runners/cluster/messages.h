// Messages between the processes of one run: rank 0 talks with each of the others. MPI's are in a
// library of their own (runners/cluster/mpi/), which is loaded when a run asks for it: no other run
// needs MPI.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace evalrun::runners {

struct Message {
  int from = 0;
  std::string text;
  bool gone = false;  // instead of a text: the process has ended, which MPI does not tell
};

// Calls come from one thread at a time.
class Messages {
 public:
  virtual ~Messages() = default;
  virtual int rank() const = 0;  // of this process, from 0
  virtual int size() const = 0;  // how many there are
  virtual void send(int to, const std::string& text) = 0;
  // The next one, whoever sent it; nullopt where none has come. Never waits: an MPI process that
  // waits keeps a core busy, which others measure on.
  virtual std::optional<Message> poll() = 0;
};

// Waits for the next message, mostly asleep.
Message wait_for_message(Messages& messages);

// Of the processes that mpirun started. Throws kEnvironment where this build has no MPI, or its
// library cannot be loaded or started.
std::unique_ptr<Messages> open_mpi();

}  // namespace evalrun::runners
