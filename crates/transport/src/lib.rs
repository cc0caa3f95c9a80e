//! Packets, sessions and reliable delivery, sans-io.
