//! How deep the brackets of a `.proto` file nest, found without recursion and before any parser sees the text: the parsers
//! recurse, and a stack that overflows ends the process.
//!
//! Where a comment or a string is not well formed the scan ends with a refusal, so the scan and the parser never differ on
//! what is text and what is code.

use crate::encoding::reader::Reader;
use crate::nesting::{Brackets, MAX_NESTING};

use super::wire::{Wire, tag};

/// Refuses a text whose brackets nest too deep; the message says the line, the depth and the bound.
pub(super) fn check(source: &str) -> Result<(), String> {
    let mut scan = Scan { rest: source.as_bytes(), line: 1 };
    let mut brackets = Brackets::default();
    while let Some(byte) = scan.code()? {
        brackets.take(byte, scan.line);
    }
    brackets.end().map_err(|why| format!("{why}: declare the inner messages side by side"))
}

/// Where a compiled set has its files, a file its messages, and a message those that are declared in it.
const FILE: u32 = tag(1, Wire::Length);
const MESSAGE: u32 = tag(4, Wire::Length);
const INNER: u32 = tag(3, Wire::Length);

/// Refuses a compiled set of files whose messages are declared in each other too deep. Input that is no such set is
/// left to its parser.
pub(super) fn check_set(set: &[u8]) -> Result<(), String> {
    let mut open = vec![(FILE, Reader::new(set))];
    while let Some((wanted, reader)) = open.last_mut() {
        let wanted = *wanted;
        match reader.tag() {
            Ok(tag) if tag == wanted => {
                let Ok(inner) = reader.length_delimited() else { return Ok(()) };
                open.push((if wanted == FILE { MESSAGE } else { INNER }, Reader::new(inner)));
                // Beside the messages, the set and a file are open.
                if open.len() > MAX_NESTING + 2 {
                    return Err(format!("its messages nest more than {MAX_NESTING} levels deep"));
                }
            }
            Ok(tag) if reader.skip(tag).is_ok() => {}
            _ => drop(open.pop()),
        }
    }
    Ok(())
}

/// The text from somewhere on.
struct Scan<'s> {
    rest: &'s [u8],
    line: usize,
}

impl Scan<'_> {
    /// The next byte outside comments and strings.
    fn code(&mut self) -> Result<Option<u8>, String> {
        loop {
            match self.rest {
                [] => return Ok(None),
                [b'/', b'/', ..] | [b'#', ..] => self.line_comment(),
                [b'/', b'*', ..] => self.block_comment()?,
                [quote @ (b'"' | b'\''), ..] => self.string(*quote)?,
                [byte, ..] => {
                    self.skip(1);
                    return Ok(Some(*byte));
                }
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += skipped.iter().filter(|byte| **byte == b'\n').count();
        self.rest = rest;
    }

    fn refuse<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("line {}: {what}", self.line))
    }

    fn line_comment(&mut self) {
        let len = self.rest.iter().position(|byte| *byte == b'\n').unwrap_or(self.rest.len());
        self.skip(len);
    }

    fn block_comment(&mut self) -> Result<(), String> {
        self.skip(2);
        loop {
            match self.rest {
                [] => return self.refuse("a comment does not end: it lacks `*/`"),
                [b'*', b'/', ..] => {
                    self.skip(2);
                    return Ok(());
                }
                [b'/', b'*', ..] => return self.refuse("a comment begins within a comment"),
                _ => self.skip(1),
            }
        }
    }

    fn string(&mut self, quote: u8) -> Result<(), String> {
        self.skip(1);
        loop {
            match self.rest {
                [] | [b'\n' | 0, ..] => return self.refuse("a string does not end on its line"),
                [b'\\', escape @ ..] => match escape_bytes(escape) {
                    Some(bytes) => self.skip(1 + bytes),
                    None => return self.refuse("a string has a `\\` that begins no escape"),
                },
                [byte, ..] => {
                    self.skip(1);
                    if *byte == quote {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// The length of what follows the `\` of an escape.
fn escape_bytes(rest: &[u8]) -> Option<usize> {
    let hex = |digits: usize| {
        let found = rest.get(1..)?.iter().take(digits).take_while(|byte| byte.is_ascii_hexdigit()).count();
        Some(found)
    };
    match rest.first()? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'?' | b'\\' | b'\'' | b'"' | b'0'..=b'7' => Some(1),
        b'x' | b'X' => hex(1).filter(|found| *found == 1).map(|_| 2),
        b'u' => hex(4).filter(|found| *found == 4).map(|_| 5),
        b'U' => hex(8).filter(|found| *found == 8).map(|_| 9),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;
    use crate::encoding::protobuf::ProtobufSchema;

    fn nested(depth: usize) -> String {
        let open: String = (0..depth).map(|level| format!("message M{level} {{\n")).collect();
        format!("syntax = \"proto3\";\n{open}{}{}", "int32 a = 1;", "}".repeat(depth))
    }

    #[test]
    fn nesting_is_read_up_to_the_bound_and_refused_beyond() {
        assert_eq!(check(&nested(MAX_NESTING)), Ok(()));
        let why = check(&nested(MAX_NESTING + 1)).unwrap_err();
        assert!(why.starts_with("line 50: it nests 49 levels deep, and at most 48 are read"), "{why}");
        for (open, close) in [("{", "}"), ("[", "]"), ("<", ">")] {
            let most = format!("{}{}", open.repeat(MAX_NESTING), close.repeat(MAX_NESTING)).repeat(3);
            assert_eq!(check(&most), Ok(()));
            assert!(check(&format!("{most}{}", open.repeat(100_000))).unwrap_err().contains(" 100000 levels"));
        }
    }

    /// Each of these overflowed the stack, or would.
    #[test]
    fn no_parser_sees_what_nests_too_deep() {
        let option = |open: &str| format!("option (o) = {{ {}", format!("a {open} ").repeat(50_000));
        let group = "optional group A = 1 {".repeat(50_000);
        for source in [nested(50_000), option("{"), option("<"), option(": ["), format!("message A {{ {group}")] {
            let error = ProtobufSchema::import(&[("a.proto", &source)], None).unwrap_err().to_string();
            assert!(error.contains("at most 48 are read"), "{error}");
        }
    }

    #[test]
    fn brackets_in_comments_and_strings_do_not_count() {
        let many = "{".repeat(100);
        for source in [
            format!("// {many}\n"),
            format!("# {many}"),
            format!("/* {many}\n * {many} **/ message A {{}}"),
            format!("option a = \"{many}\\\"{many}'\\'{many}\\x41\\u00e9\\U0001F600\\101\";"),
            format!("option a = '{many}\"//{many}/*';"),
        ] {
            assert_eq!(check(&source), Ok(()), "{source}");
        }
    }

    /// The parser goes on behind these, and may take for code what looks like text.
    #[test]
    fn comments_and_strings_that_are_not_well_formed_are_refused() {
        for (source, says) in [
            ("a\n/* /* */ ' */", "line 2: a comment begins within a comment"),
            ("/* a", "line 1: a comment does not end"),
            ("'a\nb'", "line 1: a string does not end on its line"),
            ("\"a", "line 1: a string does not end on its line"),
            ("'\0'", "line 1: a string does not end on its line"),
            (r"'\q'", r"line 1: a string has a `\` that begins no escape"),
            (r"'\x'", r"line 1: a string has a `\` that begins no escape"),
            (r"'\u12'", r"line 1: a string has a `\` that begins no escape"),
            (r"'\", r"line 1: a string has a `\` that begins no escape"),
        ] {
            let why = check(source).unwrap_err();
            assert!(why.starts_with(says), "{source}: {why}");
        }
    }

    #[test]
    fn a_long_chain_of_messages_is_no_recursion() {
        let chain: String = (0..4000).map(|at| format!("message M{at} {{ M{} a = 1; }}\n", at + 1)).collect();
        let source = format!("syntax = \"proto3\";\n{chain}message M4000 {{ int32 a = 1; }}");
        let schema = ProtobufSchema::import(&[("a.proto", &source)], Some("M0")).unwrap();
        assert!(schema.format().unwrap_err().to_string().contains("deep"));
    }
}
