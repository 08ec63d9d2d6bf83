// What fibres.cpp tells of a cluster to the part that knows Hopper's instructions (hopper.cpp).
#pragma once

namespace emulator::hopper {

void begin(int threads);         // a cluster, or a block alone, begins
void end_of_thread(int thread);  // its kernel has returned
void end();                      // all have
// Some bulk copies that are under way arrive, by chance; one at least when `all_wait`. Whether one
// did.
bool some_copies_arrive(bool all_wait);

}  // namespace emulator::hopper
