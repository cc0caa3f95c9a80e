//! Packet I/O: UDP super-packets and in-memory pairs.
