// The grids of GGUF's IQ1, IQ2 and IQ3 types: points of 8 or 4 coordinates, of which a code is the
// index. The points are a choice of llama.cpp's authors: no formula gives them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace evalrun::engine::blocks {

template <size_t length, size_t points>
using Grid = std::array<std::array<int8_t, length>, points>;

// Magnitudes; signs are stored apart.
extern const Grid<8, 256> kGridIq2Xxs;
extern const Grid<8, 512> kGridIq2Xs;
extern const Grid<8, 1024> kGridIq2S;
extern const Grid<4, 256> kGridIq3Xxs;
extern const Grid<4, 512> kGridIq3S;
// -1, 0 and 1; of IQ1_S and IQ1_M.
extern const Grid<8, 2048> kGridIq1;

}  // namespace evalrun::engine::blocks
