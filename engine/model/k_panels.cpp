#include "engine/model/k_panels.h"

#include <cstdint>
#include <cstring>

namespace evalrun::engine {
namespace {

constexpr size_t kChannels = 16, kLineBytes = 64;
constexpr size_t kLinesOfPart = kKNibbles / kLineBytes;  // of four inputs in each half

void store_16(std::byte* to, uint16_t value) { std::memcpy(to, &value, sizeof value); }
uint16_t load_16(const std::byte* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Four neighbouring codes as one word.
uint32_t word_at(const uint8_t* codes) {
  uint32_t word;
  std::memcpy(&word, codes, sizeof word);
  return word;
}

constexpr uint32_t kLowHalves = 0x0F0F0F0Fu, kLowest = 0x01010101u, kLowestTwo = 0x03030303u;

// `codes`: the 64 of a part.
void store_part(int bits, std::byte* part, size_t channel, const uint8_t* codes) {
  std::byte* to = part + channel * 4;
  for (size_t i = 0; i < kLinesOfPart; ++i) {
    const uint32_t both =
        (word_at(codes + 4 * i) & kLowHalves) | (word_at(codes + 32 + 4 * i) & kLowHalves) << 4;
    std::memcpy(to + i * kLineBytes, &both, sizeof both);
  }
  if (bits == 4) return;
  const size_t lines = bits == 5 ? 2 : 4, fours = 16 / lines;
  for (size_t line = 0; line < lines; ++line) {
    uint32_t high = 0;
    for (size_t i = 0; i < fours; ++i) {
      const uint32_t top = word_at(codes + (line * fours + i) * 4) >> 4;
      high |= bits == 5 ? (top & kLowest) << i : (top & kLowestTwo) << 2 * i;
    }
    std::memcpy(to + kKNibbles + line * kLineBytes, &high, sizeof high);
  }
}

void load_part(int bits, const std::byte* part, size_t channel, uint8_t* codes) {
  const std::byte* from = part + channel * 4;
  const size_t fours = bits == 5 ? 8 : 4;  // of a line of high bits
  for (size_t four = 0; four < 2 * kLinesOfPart; ++four) {
    uint32_t word;
    std::memcpy(&word, from + four % kLinesOfPart * kLineBytes, sizeof word);
    word = (four < kLinesOfPart ? word : word >> 4) & kLowHalves;
    if (bits > 4) {
      uint32_t high;
      std::memcpy(&high, from + kKNibbles + four / fours * kLineBytes, sizeof high);
      const size_t i = four % fours;
      word |= (bits == 5 ? high >> i & kLowest : high >> 2 * i & kLowestTwo) << 4;
    }
    std::memcpy(codes + 4 * four, &word, sizeof word);
  }
}

}  // namespace

void store_k_block(int bits, std::byte* block, int channel, const KBlock& from) {
  const auto c = static_cast<size_t>(channel);
  const size_t scales = bits == 6 ? 16 : 8;
  for (size_t j = 0; j < scales; ++j)
    block[j * kChannels + c] = static_cast<std::byte>(from.scale[j]);
  store_16(block + kKd + 2 * c, from.d);
  if (bits != 6) {
    for (size_t j = 0; j < 8; ++j)
      block[kKMinima + (j / 2 * kChannels + c) * 2 + j % 2] = static_cast<std::byte>(from.min[j]);
    store_16(block + kKm + 2 * c, from.dmin ^ 0x8000u);
  }
  for (size_t part = 0; part < 4; ++part)
    store_part(bits, block + kKParts + part * k_part_bytes(bits), c, from.code.data() + 64 * part);
}

KBlock load_k_block(int bits, const std::byte* block, int channel) {
  const auto c = static_cast<size_t>(channel);
  KBlock to;
  const size_t scales = bits == 6 ? 16 : 8;
  for (size_t j = 0; j < scales; ++j) to.scale[j] = static_cast<int8_t>(block[j * kChannels + c]);
  to.d = load_16(block + kKd + 2 * c);
  if (bits != 6) {
    for (size_t j = 0; j < 8; ++j)
      to.min[j] = static_cast<uint8_t>(block[kKMinima + (j / 2 * kChannels + c) * 2 + j % 2]);
    to.dmin = load_16(block + kKm + 2 * c) ^ 0x8000u;
  }
  for (size_t part = 0; part < 4; ++part)
    load_part(bits, block + kKParts + part * k_part_bytes(bits), c, to.code.data() + 64 * part);
  return to;
}

}  // namespace evalrun::engine
