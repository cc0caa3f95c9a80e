//! Seeded virtual time, network and faults for tests.
