// Messages by MPI, as a library that evalrun loads (runners/cluster/messages.h). MPI 3.1:
// https://www.mpi-forum.org/docs/.
#include <mpi.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "runners/cluster/messages.h"

namespace evalrun::runners {
namespace {

constexpr int kTag = 1;

class MpiMessages final : public Messages {
 public:
  MpiMessages() {
    int given = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS)
      throw std::runtime_error("MPI_Init_thread failed");
    if (given < MPI_THREAD_SERIALIZED)
      throw std::runtime_error("this MPI allows no second thread (MPI_THREAD_SERIALIZED)");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiMessages() override {
    // After an error the others may never come to their end: mpirun ends them when this process has
    // left without finalising.
    if (std::uncaught_exceptions() == 0) MPI_Finalize();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(int to, const std::string& text) override {
    MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, to, kTag, MPI_COMM_WORLD);
  }
  std::optional<Message> poll() override {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &there, &status);
    if (there == 0) return std::nullopt;
    int n = 0;
    MPI_Get_count(&status, MPI_CHAR, &n);
    Message message = {status.MPI_SOURCE, std::string(static_cast<size_t>(n), '\0')};
    MPI_Recv(message.text.data(), n, MPI_CHAR, status.MPI_SOURCE, kTag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return message;
  }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace
}  // namespace evalrun::runners

// Null where it failed; `why` then says why.
extern "C" evalrun::runners::Messages* evalrun_mpi_open(std::string* why) {
  try {
    return new evalrun::runners::MpiMessages;
  } catch (const std::exception& e) {
    *why = e.what();
    return nullptr;
  }
}
