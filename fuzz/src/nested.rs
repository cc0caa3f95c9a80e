//! A format with all that may lie in a record.

/// Nested records, lists, lists of them, a union, an enumeration and a decimal.
pub const SCHEMA: &str = "a i16 null\nb string null\nc record { d bool; e timestamp null } null\nf f32 null\ng bytes null\n\
    h record { i u8; j string[] null }[]\nk u8[2][] null\nl union { m i32; n record { o char[2] } } null\n\
    p enum u8 { X = 1 } null\nq decimal(8, scale 2) null";

/// Lists whose elements may be null, and lists in lists in lists.
pub const ELEMENTS: &str = "a record { value record { x i32; y string null } null }[] null\n\
    b record { value string null }[] null\nc i8[][][] null\nd i16 null";
