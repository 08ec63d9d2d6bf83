"""evalrun's CPU engine beside llama.cpp; started by scripts/bench-peers, described in docs/peers.md."""
