//! People's notation for formats, as in files for `--schema`.
//!
//! A field a line, `name type`, with ` null` behind it if the field may be null. A name that is no plain word stands in
//! double quotes; `#` starts a comment; `;` does as well as the end of a line; braces may span lines.
//!
//! ```text
//! id u64
//! carrier char[2]
//! fare decimal(8, scale 2) null
//! side enum u8 { BUY = 66, SELL = 'S' }
//! pos record { x f32; y f32 } null
//! legs record { to string; km u16 }[]     # a list of records
//! samples i16[16]                         # always sixteen
//! msg union { add record { price i64 }; del record { id u64 } }
//! ```
//!
//! | type | values |
//! |---|---|
//! | `bool`, `i8` … `u64`, `f32`, `f64` | one byte, or the number |
//! | `timestamp` | nanoseconds since 1970 |
//! | `char[N]`, `string`, `bytes` | text of at most N bytes, text, bytes |
//! | `decimal(BYTES, scale N)` | a number of N digits behind the point in 4, 8 or 16 bytes |
//! | `enum u8 { A = 1, B = 2 }` | a number (of `i8` … `i64`, `u8` … `u32`) that stands for a symbol |
//! | `record { … }` | the fields in the braces |
//! | `union { … }` | exactly one of the fields in the braces |
//! | `T[]`, `T[N]` | any number of, or exactly N, values of type T |
//!
//! # Versions
//!
//! Behind that, a field says how it goes together with other versions of its format, in conversions and where records are
//! read from an encoding ([`Evolution`]):
//!
//! | | |
//! |---|---|
//! | `default VALUE` | what the field holds where a record has no such field, or has null and the field is never null; `[]` for a list |
//! | `alias NAME` | a name that it had; it is found by the first of them that there is, where there is none of its own name. For records and unions too |
//! | `unknown SYMBOL` | of an enumeration: the symbol that stands for those that it lacks |
//!
//! ```text
//! departure_delay i32 null alias dep_delay alias delay
//! origin string default "unknown airport"
//! status enum u8 { PLANNED = 0, LEFT = 1, OTHER = 9 } unknown OTHER
//! ```
//!
//! # Layouts of other programs
//!
//! Without more, records lie in the natural layout. A first line `layout foreign …` says that they lie as another
//! program has them, say a C struct or an exchange's feed; each field then says where it differs:
//!
//! ```text
//! layout foreign big packed size variant
//! type char[1]
//! flags u8
//! time timestamp size 6 unit ns
//! venue u16 null unless bit 0 of flags
//! msg union on type {
//!     'A' => add record { ref u64; shares u32; stock char[8] pad space; price decimal(4, scale 4) }
//!     'D' 'X' => delete record { ref u64 }
//! }
//! ```
//!
//! | the first line: `layout foreign` and | |
//! |---|---|
//! | `little`, `big` | the byte order of fields that do not say theirs |
//! | `packed`, `aligned`, `explicit` | a field lies right behind the one before it; where a C compiler has it; where it says, which each must |
//! | nothing, `size N` | a record is as long as its fields need, or N bytes |
//! | `size variant` | it ends where the variants, and the fields of variable length, end that are there |
//! | `length FIELD +N` | it is as long as the field says, and N bytes more (or fewer: `-N`) |
//!
//! | behind a field's type | |
//! |---|---|
//! | `at N` | it starts N bytes from the start of the record, or of the element |
//! | `be`, `le` | its byte order |
//! | `bits A..B` | only the bits from A (0 is the lowest) up to B, B left out |
//! | `null if = VALUE` | this value stands for null: a number, a symbol, a text, `nan` |
//! | `null bit B of FIELD`, `null unless bit B of FIELD` | it is null where the bit is set, or is not; goes for records too |
//! | `pad space` | a `char[N]` that is filled up with blanks |
//! | `unit s`, `ms`, `us`, `ns`; `size N` | what a timestamp counts, since 1970, and in how many bytes; a time beyond 64 bits of nanoseconds (the years 1677 to 2262) has its record refused. A `bool` may have a size too |
//! | `slot uN uN`, `base N` | a `string`, `bytes` or list lies behind an offset and a length (of a list, a count) of such widths; the offset counts from `base` bytes into the record, 0 if not said |
//! | `count FIELD` | the list has as many elements as the field says, and lies here |
//! | `stride N` | its elements are N bytes apart |
//! | `overlay` | it may lie in the bytes of others |
//! | `inline uN`, `inline varint` | a `string`, `bytes` or list lies here, behind its length (of a list, its count) of such a width |
//! | `until nul` | a `string` lies here, up to a NUL |
//! | `varint`, `zigzag` | an unsigned number in LEB128 (seven bits a byte, the lowest first, at most ten bytes); a signed one, whose sign is the lowest bit |
//! | `group uN uM`, `head N` | a list lies here as groups of SBE do: behind the length of an element's block and the number of elements, of such widths; the two take N bytes if there is more between them. Bytes of a block behind the element's fields are passed over |
//! | `length FIELD +N` | of a record: it takes as many bytes as the field says, and N more; those behind its fields are passed over |
//! | `after FIELD` | the place that `at` states counts from the end of this field of variable length |
//!
//! # Fields of variable length
//!
//! Behind a list with a `count`, and behind what `inline`, `until nul`, `varint`, `group` and `length` describe, fields
//! have no constant place: in a `packed` layout they follow all the same, otherwise `after FIELD at N` says where they
//! are. Reading them walks over what lies in front ([`ReadCost::Walked`](crate::ReadCost::Walked)); fields in front of
//! the first field of variable length are read as ever. A record is refused if one of the lengths leads out of it.
//!
//! ```text
//! layout foreign little packed length size
//! size u16
//! block u16
//! root record { time timestamp; flags u8 } length block
//! prices record { px i64; qty i32 null if = 2147483647 }[] group u16 u8
//! orders record { id u64 }[] group u16 u8 head 8
//! note string inline u16
//! crc u32
//! ```
//!
//! A layout has at most 64 such fields, and no slots beside them. Elements of lists, records that may be null by a bit and
//! records with a `length` have none of them, and nothing lies behind a union one of whose variants has one. A field whose
//! value follows from others, and is a `varint`, is worked out only where it is a list's `count`; otherwise it has to be
//! set when a record is written.
//!
//! ```
//! use crossdock_format::{Format, Record, RecordBuilder, Value};
//!
//! let feed = Format::parse_schema(
//!     "layout foreign big packed size variant
//!      type char[1]
//!      msg union on type { 'A' => add record { shares u32; stock char[8] pad space }; 'D' => delete u64 }",
//! )?;
//! let message = *b"A\0\0\x01\x2cACME    ";
//! let record = Record::check(&feed, &message)?;
//! let [stock, shares] = ["msg.add.stock", "msg.add.shares"].map(|name| feed.field(name).unwrap());
//! assert_eq!((record.get(stock), record.get(shares)), (Value::Text(b"ACME"), Value::Uint(300)));
//!
//! // The same, written: the type follows from the message.
//! let mut row = RecordBuilder::new(&feed);
//! row.set_text(stock, "ACME")?;
//! row.set_u64(shares, 300)?;
//! assert_eq!(row.finish()?, message);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! There are whole numbers of any bytes up to eight (`u24`, `i48`). The value of a field in front of a union selects
//! its variant: `union on FIELD { VALUE … => name type; … }`.

mod parse;

use std::fmt::{self, Write as _};

use crate::field::FieldType;
use crate::format::{Format, FormatError};
use crate::spec::{Evolution, FieldSpec, TypeSpec};

pub(crate) use parse::{Dialect, Node, Ty, character, parse_fields, parse_nodes};

impl Format {
    /// The format in people's notation, which [`Format::parse_schema`] reads back.
    #[must_use]
    pub fn schema(&self) -> String {
        match &self.layout().foreign {
            Some(foreign) => format!("layout foreign little explicit {}\n{}", foreign.rule_text, foreign.body),
            None => schema(&self.specs()),
        }
    }

    /// Reads people's notation, as in files for `--schema`: `name type` a line, ` null` behind it if the field may be
    /// null; a name that is no plain word stands in double quotes; `#` starts a comment. See [`crate::notation`].
    ///
    /// # Errors
    /// A line that is not so, a type that is not known, or what [`Format::natural`] refuses, with the line.
    pub fn parse_schema(text: &str) -> Result<Format, FormatError> {
        parse_schema(text)
    }
}

/// People's notation to a format.
pub(crate) fn parse_schema(text: &str) -> Result<Format, FormatError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text;
    for line in 1.. {
        let (first, body) = rest.split_once('\n').unwrap_or((rest, ""));
        let words = first.trim();
        if let Some(head) = words.strip_prefix("layout").and_then(|head| head.trim_start().strip_prefix("foreign"))
            && head.is_empty() | head.starts_with(char::is_whitespace)
        {
            return crate::foreign::parse(line, head, body, false);
        }
        if body.is_empty() || !(words.is_empty() || words.starts_with('#')) {
            break;
        }
        rest = body;
    }
    parse_fields(text, 1, Dialect::People)
}

/// People's notation of these fields: what [`parse_schema`] reads.
pub(crate) fn schema(specs: &[FieldSpec]) -> String {
    let mut text = String::new();
    write_fields(specs, Some(0), false, &mut text);
    text
}

/// A field in one line, which [`parse_schema`] reads back as a format of this field.
#[cfg(any(feature = "avro", feature = "protobuf"))]
pub(crate) fn field_line(spec: &FieldSpec) -> String {
    let mut text = String::new();
    write_fields(std::slice::from_ref(spec), None, false, &mut text);
    text
}

/// A type in one line.
pub(crate) fn one_line(ty: &TypeSpec) -> String {
    let mut text = String::new();
    write_type(ty, None, &mut text);
    text
}

/// A field a line at this depth, or, with none, all in one line.
fn write_fields(specs: &[FieldSpec], depth: Option<usize>, are_variants: bool, text: &mut String) {
    for (index, FieldSpec { name, ty, nullable, evolution }) in specs.iter().enumerate() {
        match depth {
            Some(depth) => text.push_str(&"    ".repeat(depth)),
            None if index > 0 => text.push_str("; "),
            None => {}
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{} ", Quoted(name));
        write_type(ty, depth, text);
        // Any variant may be missing, so `null` is not written for it.
        if *nullable && !are_variants {
            text.push_str(" null");
        }
        if let Some(evolution) = evolution {
            let _ = write!(text, "{evolution}");
        }
        if depth.is_some() {
            text.push('\n');
        }
    }
}

fn write_type(ty: &TypeSpec, depth: Option<usize>, text: &mut String) {
    match ty {
        TypeSpec::Scalar(FieldType::Enum { bytes, signed }) => {
            let _ = write!(text, "{} {{}}", FieldType::Enum { bytes: *bytes, signed: *signed });
        }
        TypeSpec::Scalar(ty) => {
            let _ = write!(text, "{ty}");
        }
        TypeSpec::Enum { bytes, signed, symbols } => {
            let _ = write!(text, "{} {{", FieldType::Enum { bytes: *bytes, signed: *signed });
            for (index, (symbol, number)) in symbols.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let _ = write!(text, "{comma} {} = {number}", Quoted(symbol));
            }
            text.push_str(if symbols.is_empty() { "}" } else { " }" });
        }
        TypeSpec::List { element, count } => {
            write_type(element, depth, text);
            match count {
                Some(count) => {
                    let _ = write!(text, "[{count}]");
                }
                None => text.push_str("[]"),
            }
        }
        TypeSpec::Record(fields) | TypeSpec::Union(fields) => {
            let is_union = matches!(ty, TypeSpec::Union(_));
            text.push_str(if is_union { "union {" } else { "record {" });
            text.push(if depth.is_some() { '\n' } else { ' ' });
            write_fields(fields, depth.map(|depth| depth + 1), is_union, text);
            match depth {
                Some(depth) => text.push_str(&"    ".repeat(depth)),
                None => text.push(' '),
            }
            text.push('}');
        }
    }
}

/// As the notations have it, behind a field's type.
impl fmt::Display for Evolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evolution { default, aliases, unknown } = self;
        if let Some(value) = default {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.:[]".contains(&byte);
            match !value.is_empty() && value.bytes().all(is_plain) {
                true => write!(f, " default {value}")?,
                false => write!(f, " default {}", Quoted(value))?,
            }
        }
        let unknown = unknown.iter().map(|symbol| ("unknown", symbol));
        let aliases = aliases.iter().map(|name| ("alias", name));
        for (word, value) in unknown.chain(aliases) {
            write!(f, " {word} {}", Quoted(value))?;
        }
        Ok(())
    }
}

/// A name as the notations write it: bare if it is a plain identifier, otherwise in double quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts_plain = self.0.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if starts_plain && self.0.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for c in self.0.chars() {
            if matches!(c, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        f.write_char('"')
    }
}

/// Enough of a text to find it again, for error messages.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        short.push('…');
    }
    short
}
