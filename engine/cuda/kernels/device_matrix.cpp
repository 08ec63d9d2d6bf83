#include "engine/cuda/kernels/device_matrix.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "engine/base/error.h"
#include "engine/cuda/kernels/k_codes.h"
#include "engine/cuda/kernels/pack.h"

namespace evalrun::engine::cuda {
namespace {

// `s`: of a device's matrix.
size_t code_bytes(WeightStorage s, int outputs, int in) {
  const auto rows = static_cast<size_t>(outputs), inputs = static_cast<size_t>(in),
             padded = static_cast<size_t>(padded_to(in, kBlock));
  switch (s) {
    case WeightStorage::kF32:
      return rows * inputs * 4;
    case WeightStorage::kBf16:
      return rows * padded * 2;
    case WeightStorage::kInt8Channel:
    case WeightStorage::kInt8Group:
      return rows * padded;
    case WeightStorage::kQ4Group:
      return rows * padded / 2;
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      return rows / kTile * (padded / kBlock) * static_cast<size_t>(k_code_bytes(k_bits(s)));
    case WeightStorage::kQ4Centred:  // not on devices
      break;
  }
  return 0;
}
size_t k_scale_bytes(int outputs, int in) {
  return static_cast<size_t>(outputs / kTile) * static_cast<size_t>(in / kBlock) * kKScaleBytes;
}
// Factors of K-quants included.
size_t scale_bytes(WeightStorage s, int outputs, int in) {
  const size_t groups =
      static_cast<size_t>(outputs) * static_cast<size_t>(padded_to(in, kBlock) / kBlock);
  switch (s) {
    case WeightStorage::kInt8Channel:
      return static_cast<size_t>(outputs) * 4;
    case WeightStorage::kInt8Group:
      return groups * 2;
    case WeightStorage::kQ4Group:
      return groups * 4;
    case WeightStorage::kQ4K:
    case WeightStorage::kQ5K:
    case WeightStorage::kQ6K:
      return k_scale_bytes(outputs, in) + static_cast<size_t>(outputs / kTile) *
                                              static_cast<size_t>(in / kKBlock) *
                                              static_cast<size_t>(k_factor_bytes(k_bits(s)));
    case WeightStorage::kF32:
    case WeightStorage::kBf16:
    case WeightStorage::kQ4Centred:
      break;
  }
  return 0;
}

}  // namespace

size_t DeviceMatrix::bytes_for(WeightStorage storage, int out, int in) {
  const WeightStorage s = with_offsets(storage);
  const int outputs = padded_to(out, kTile);
  return code_bytes(s, outputs, in) + scale_bytes(s, outputs, in);
}

DeviceMatrix::DeviceMatrix(const WeightMatrix& w, cudaStream_t stream)
    : DeviceMatrix(std::array<const WeightMatrix*, 1>{&w}, Joint::kBehind, stream) {}

DeviceMatrix::DeviceMatrix(std::span<const WeightMatrix* const> parts, Joint joint,
                           cudaStream_t stream, Upload* upload) {
  EVALRUN_CHECK(!parts.empty() && parts.size() <= kMaxParts, "{} parts", parts.size());
  EVALRUN_CHECK(joint == Joint::kBehind || parts.size() == 2, "{} parts in turns", parts.size());
  ref_.storage = with_offsets(parts[0]->storage());
  ref_.in = parts[0]->in();
  ref_.blocks = padded_to(ref_.in, kBlock) / kBlock;

  std::optional<Upload> own;
  if (upload == nullptr) {
    size_t most = 1;
    for (const WeightMatrix* w : parts) most = std::max(most, w->size());
    upload = &own.emplace(std::min(most, Upload::kPiece));
  }
  RowMap map;
  map.joint = joint;
  map.n = static_cast<int>(parts.size());
  std::vector<DeviceBuffer> raw;
  const WaitOnError before_they_go(stream);
  std::array<WeightMatrix, kMaxParts> written;  // of parts that are kept without their offsets
  int outputs = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    EVALRUN_CHECK(join(*parts[i], *parts[0]) && parts[i]->in() == ref_.in,
                  "parts of one matrix differ in storage or inputs");
    if (parts[i]->storage() != ref_.storage) written[i] = parts[i]->converted(ref_.storage);
    const WeightMatrix& w = written[i].empty() ? *parts[i] : written[i];
    EVALRUN_CHECK(joint == Joint::kBehind || w.out() == parts[0]->out(), "parts in turns differ");
    raw.emplace_back(w.size());
    upload->copy(raw.back().as<void>(), w.bytes().data(), w.size(), stream);
    map.part[i] = {raw.back().as<unsigned char>(), w.panel_bytes(), w.out(), w.in()};
    map.first[i] = joint == Joint::kTurns ? static_cast<int>(i) * 8 : outputs;
    first_.push_back(map.first[i]);
    outputs += padded_to(w.out(), joint == Joint::kTurns ? 8 : kTile);
  }
  ref_.tiles = outputs / kTile;
  codes_ = DeviceBuffer(code_bytes(ref_.storage, outputs, ref_.in));
  scales_ = DeviceBuffer(scale_bytes(ref_.storage, outputs, ref_.in));
  ref_.codes = codes_.as<unsigned char>();
  ref_.scales = scales_.as<unsigned char>();
  if (k_bits(ref_.storage) != 0) ref_.factors = ref_.scales + k_scale_bytes(outputs, ref_.in);

  pack(map, ref_, codes_.bytes(), scales_.bytes(), stream);
  EVALRUN_CUDA(cudaStreamSynchronize(stream));  // `raw` goes
  upload->waited();
}

namespace {

// A host matrix is where its weights are; of parts, the first tells, because they are joined the
// same way every time.
struct Key {
  int device;
  const std::byte* data;
  size_t parts;
  auto operator<=>(const Key&) const = default;
};
struct Entry {
  std::weak_ptr<const DeviceMatrix> matrix;
  std::weak_ptr<const std::byte> host;
};
std::mutex store_mutex;
std::map<Key, Entry>& store() {
  static std::map<Key, Entry> entries;
  return entries;
}
std::shared_ptr<const DeviceMatrix> find(const Key& key) {
  const auto it = store().find(key);
  if (it == store().end() || it->second.host.expired()) return nullptr;
  return it->second.matrix.lock();
}

}  // namespace

std::shared_ptr<const DeviceMatrix> MatrixStore::get(int device,
                                                     std::span<const WeightMatrix* const> parts,
                                                     Joint joint, cudaStream_t stream,
                                                     Upload* upload) {
  const std::lock_guard lock(store_mutex);
  const Key key{device, parts[0]->bytes().data(), parts.size()};
  if (auto there = find(key)) return there;
  std::erase_if(store(), [](const auto& e) { return e.second.matrix.expired(); });
  auto made = std::make_shared<const DeviceMatrix>(parts, joint, stream, upload);
  store()[key] = {made, parts[0]->owner()};
  return made;
}
std::shared_ptr<const DeviceMatrix> MatrixStore::get(int device, const WeightMatrix& w,
                                                     cudaStream_t stream, Upload* upload) {
  const WeightMatrix* const one[] = {&w};
  return get(device, one, Joint::kBehind, stream, upload);
}
size_t MatrixStore::missing(int device, std::span<const WeightMatrix* const> parts) {
  const std::lock_guard lock(store_mutex);
  if (find({device, parts[0]->bytes().data(), parts.size()})) return 0;
  size_t bytes = 0;
  for (const WeightMatrix* w : parts)
    bytes += DeviceMatrix::bytes_for(w->storage(), w->out(), w->in());
  return bytes;
}

std::vector<JointMatrix::Parts> JointMatrix::pieces_of(Parts parts, Joint joint) {
  std::vector<Parts> pieces;
  if (joint == Joint::kTurns) {
    if (DeviceMatrix::join(*parts[0], *parts[1])) return {parts};
    return {parts.first(1), parts.last(1)};
  }
  for (size_t i = 0, begin = 0; i < parts.size(); ++i) {
    if (i + 1 < parts.size() && DeviceMatrix::join(*parts[i], *parts[i + 1])) continue;
    pieces.push_back(parts.subspan(begin, i + 1 - begin));
    begin = i + 1;
  }
  return pieces;
}

JointMatrix::JointMatrix(int device, Parts parts, Joint joint, cudaStream_t stream,
                         Upload& upload) {
  const std::vector<Parts> of = pieces_of(parts, joint);
  joint_ = of.size() == 1 ? joint : Joint::kBehind;
  for (const Parts& piece : of) {
    auto matrix = MatrixStore::get(device, piece, joint_, stream, &upload);
    for (size_t i = 0; i < piece.size(); ++i) parts_.push_back(outputs_ + matrix->part(i));
    pieces_.push_back({matrix, outputs_});
    outputs_ += matrix->outputs();
  }
}

}  // namespace evalrun::engine::cuda
