//! The bound on how deep the parts of any input nest, and the scan that holds JSON texts to it before a parser sees them:
//! parsers recurse, and a stack that overflows ends the process.

/// How many levels deep the parts of an input may nest: the types of a schema in any language, and the values of an encoding,
/// those too that are passed over. Formats go [`MAX_DEPTH`](crate::MAX_DEPTH) deep, and some languages take up to three levels
/// for one of a format's. Parsers of this many levels stay within a fourth of a thread's 2 MiB of stack.
pub const MAX_NESTING: usize = 48;

/// The finding in values that nest deeper.
pub(crate) const TOO_DEEP: &str = "values that nest more than 48 levels deep";
const _: () = assert!(MAX_NESTING == 48, "TOO_DEEP names it");

/// The refusal of a text that nests `depth` levels deep.
pub(crate) fn refusal(line: usize, depth: usize) -> String {
    format!("line {line}: it nests {depth} levels deep, and at most {MAX_NESTING} are read")
}

/// Counts what is open, each kind of bracket by itself: the levels of a schema take several kinds each.
#[derive(Debug, Default)]
pub(crate) struct Brackets {
    open: [usize; 3],
    /// The greatest depth above the bound, and the line where it was passed.
    deepest: Option<(usize, usize)>,
}

impl Brackets {
    /// Takes the next byte of a text, which is in no string or comment.
    pub(crate) fn take(&mut self, byte: u8, line: usize) {
        let (kind, opens) = match byte {
            b'{' => (0, true),
            b'}' => (0, false),
            b'[' => (1, true),
            b']' => (1, false),
            b'<' => (2, true),
            b'>' => (2, false),
            _ => return,
        };
        let open = &mut self.open[kind];
        *open = if opens { *open + 1 } else { open.saturating_sub(1) };
        if *open > self.deepest.map_or(MAX_NESTING, |(depth, _)| depth) {
            self.deepest = Some((*open, self.deepest.map_or(line, |(_, line)| line)));
        }
    }

    /// Whether the bound was kept.
    ///
    /// # Errors
    /// The line, the depth and the bound in words.
    pub(crate) fn end(self) -> Result<(), String> {
        self.deepest.map_or(Ok(()), |(depth, line)| Err(refusal(line, depth)))
    }
}

/// Refuses a JSON text whose objects or arrays nest too deep. Of a text that is no JSON, it may take what is in a string for
/// brackets or the other way round, but where that begins the parser ends.
pub(crate) fn check_json(text: &str) -> Result<(), String> {
    let (mut brackets, mut line, mut is_escaped, mut in_string) = (Brackets::default(), 1, false, false);
    for byte in text.bytes() {
        line += usize::from(byte == b'\n');
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            byte => brackets.take(byte, line),
        }
    }
    brackets.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_of_json_count_outside_strings() {
        let (open, close) = ("{\"a\":[".repeat(MAX_NESTING), "]}".repeat(MAX_NESTING));
        assert_eq!(check_json(&format!("{open}{close}").repeat(2)), Ok(()));
        let why = check_json(&format!("\n{open}{{")).expect_err("it is too deep");
        assert_eq!(why, "line 2: it nests 49 levels deep, and at most 48 are read");
        let text = format!(r#"{{"a\"{}\\": "{}"}}"#, "[".repeat(100), "{".repeat(100));
        assert_eq!(check_json(&text), Ok(()));
    }
}
