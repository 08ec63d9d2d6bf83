// Anchor of the tests' precompiled header.
