//! Processes messages in transit: daemon, command line, control API.

fn main() {}
