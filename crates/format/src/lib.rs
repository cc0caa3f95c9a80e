//! Formats, format ids, records read in place, and their encodings.
