//! SQL text to a checked plan to typed expression code, and the reference interpreter.
