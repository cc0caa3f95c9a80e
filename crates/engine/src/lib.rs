//! Stream handlers and the forms of a program.
