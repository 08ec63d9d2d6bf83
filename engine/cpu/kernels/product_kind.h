// How a product is computed; one per weight storage.
#pragma once

namespace evalrun::engine::cpu {
enum class Kind { kF32, kBf16, kChannel, kGroup, kQ4, kQ4Centred, kQ4K, kQ5K, kQ6K };
}  // namespace evalrun::engine::cpu
