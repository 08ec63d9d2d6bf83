// Weight matrices in device memory: repacked on the way there, several as one where a product takes
// them together.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/kernels/matrix_ref.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/cuda/runtime/upload.h"
#include "engine/model/weight_matrix.h"

namespace evalrun::engine::cuda {

class DeviceMatrix {
 public:
  // Copies and repacks; parts have one storage, but for offsets that some are kept without, and one
  // number of inputs. `stream` has run when this returns. `upload`: of many matrices; nullptr: one
  // of its own.
  DeviceMatrix(std::span<const WeightMatrix* const> parts, Joint joint, cudaStream_t stream,
               Upload* upload = nullptr);
  explicit DeviceMatrix(const WeightMatrix& w, cudaStream_t stream);

  const MatrixRef& ref() const { return ref_; }
  WeightStorage storage() const { return ref_.storage; }
  int outputs() const { return ref_.tiles * kTile; }  // padding included
  int in() const { return ref_.in; }
  int padded_in() const { return ref_.blocks * kBlock; }
  // First output of a part; of kTurns 0 and 8.
  int part(size_t i) const { return first_[i]; }
  size_t bytes() const { return codes_.bytes() + scales_.bytes(); }
  static size_t bytes_for(WeightStorage storage, int out, int in);
  // Whether these can be parts of one.
  static bool join(const WeightMatrix& a, const WeightMatrix& b) {
    return with_offsets(a.storage()) == with_offsets(b.storage());
  }

 private:
  MatrixRef ref_;
  std::vector<int> first_;
  DeviceBuffer codes_, scales_;
};

// The matrices of host models on one device, shared by its sessions while any of them lives.
// Several threads may ask.
class MatrixStore {
 public:
  // A host matrix is known by its memory: the entry dies with it.
  static std::shared_ptr<const DeviceMatrix> get(int device,
                                                 std::span<const WeightMatrix* const> parts,
                                                 Joint joint, cudaStream_t stream,
                                                 Upload* upload = nullptr);
  static std::shared_ptr<const DeviceMatrix> get(int device, const WeightMatrix& w,
                                                 cudaStream_t stream, Upload* upload = nullptr);
  // Bytes that get() would still have to allocate; 0 when the matrix is on the device.
  static size_t missing(int device, std::span<const WeightMatrix* const> parts);
};

// Matrices that are multiplied with the same inputs, as the device has them: one matrix, or where
// their storages differ, as in files of K-quants, several that lie behind each other in the sums.
class JointMatrix {
 public:
  using Parts = std::span<const WeightMatrix* const>;
  struct Piece {
    std::shared_ptr<const DeviceMatrix> matrix;
    int first;  // output of all
  };

  JointMatrix() = default;
  JointMatrix(int device, Parts parts, Joint joint, cudaStream_t stream, Upload& upload);
  // The parts of each piece.
  static std::vector<Parts> pieces_of(Parts parts, Joint joint);

  const std::vector<Piece>& pieces() const { return pieces_; }
  bool is_one() const { return pieces_.size() == 1; }
  const DeviceMatrix& first() const { return *pieces_[0].matrix; }
  // kTurns: of a single piece alone.
  Joint joint() const { return joint_; }
  int outputs() const { return outputs_; }  // padding included
  int in() const { return first().in(); }
  int padded_in() const { return first().padded_in(); }
  int part(size_t i) const { return parts_[i]; }  // as of a DeviceMatrix

 private:
  std::vector<Piece> pieces_;
  std::vector<int> parts_;
  Joint joint_ = Joint::kBehind;
  int outputs_ = 0;
};

}  // namespace evalrun::engine::cuda
