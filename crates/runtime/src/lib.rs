//! Execution contexts, classification, service paths.
