"""One file a method: what is trained, its losses and how it is exported; layers they share."""
