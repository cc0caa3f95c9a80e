//! The tokens of JSON (RFC 8259).

use crate::builder::ByteRun;
use crate::scan::{Needle, Scan};
use crate::tokens::{Flaw, Open, Token, Tokens};

/// The tokens of one value, and what is behind it.
pub(super) struct JsonTokens<'a, 's> {
    scan: Scan<'a>,
    /// The last text that had escapes.
    unescaped: &'s mut Vec<u8>,
}

impl<'a, 's> JsonTokens<'a, 's> {
    pub(super) fn new(bytes: &'a [u8], unescaped: &'s mut Vec<u8>) -> Self {
        let mut scan = Scan::new(bytes);
        scan.skip_blanks();
        Self { scan, unescaped }
    }

    /// How a name is written, where nothing in it is escaped.
    pub(super) fn written(name: &str) -> Vec<u8> {
        let mut written = Vec::new();
        // A string is always written.
        let _ = serde_json::to_writer(&mut written, name);
        written
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.scan.left()
    }

    /// Whether nothing comes.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.scan.is_empty()
    }

    /// Holds if nothing follows the value.
    #[inline(always)]
    pub(super) fn end(&mut self) -> Result<(), Flaw> {
        self.scan.skip_blanks();
        if self.scan.is_empty() { Ok(()) } else { Err(Flaw::Expected("nothing more")) }
    }

    #[inline(always)]
    fn word(&mut self, word: &'static [u8], token: Token<'static>) -> Result<Token<'static>, Flaw> {
        if self.scan.take(word) { Ok(token) } else { Err(Flaw::Expected("a value")) }
    }
}

/// A text, from its opening quote on.
#[inline(always)]
fn text<'t, 'a: 't>(scan: &mut Scan<'a>, unescaped: &'t mut Vec<u8>) -> Result<ByteRun<'t>, Flaw> {
    scan.next();
    let start = *scan;
    if let Some(run) = scan.text() {
        return Ok(run);
    }
    *scan = start;
    unescaped.clear();
    scan.escaped_text(unescaped).map_err(Flaw::Expected)?;
    Ok(ByteRun::alone(unescaped))
}

/// The colon behind a name.
#[inline(always)]
fn colon(scan: &mut Scan<'_>) -> Result<(), Flaw> {
    scan.skip_blanks();
    if !scan.take_byte(b':') {
        return Err(Flaw::Expected("`:` behind the name"));
    }
    Ok(())
}

impl<'a> Tokens for JsonTokens<'a, '_> {
    const MAP: &'static str = "an object";
    const ARRAY: &'static str = "an array";
    const TIMES: &'static str = "an RFC 3339 string, such as \"2013-01-01T10:00:00Z\"";
    const LACKS_TYPES: bool = true;
    const NAMES_ARE_VALUES: bool = false;

    type Mark = Scan<'a>;

    fn mark(&self) -> Scan<'a> {
        self.scan
    }

    fn go_to(&mut self, mark: Scan<'a>) {
        self.scan = mark;
    }

    #[inline(always)]
    fn value(&mut self) -> Result<Token<'_>, Flaw> {
        self.scan.skip_blanks();
        match self.scan.peek() {
            Some(b'"') => Ok(Token::Text(text(&mut self.scan, self.unescaped)?)),
            Some(b'-' | b'0'..=b'9') => Ok(Token::Digits(self.scan.digits().map_err(Flaw::Expected)?)),
            Some(b'n') => self.word(b"null", Token::Null),
            Some(b't') => self.word(b"true", Token::Bool(true)),
            Some(b'f') => self.word(b"false", Token::Bool(false)),
            Some(b'{') => {
                self.scan.next();
                Ok(Token::Map(Open::map(None)))
            }
            Some(b'[') => {
                self.scan.next();
                Ok(Token::Array(Open::array(None)))
            }
            _ => Err(Flaw::Expected("a value")),
        }
    }

    #[inline(always)]
    fn more(&mut self, open: &mut Open) -> Result<bool, Flaw> {
        let end = if open.is_map { b'}' } else { b']' };
        self.scan.skip_blanks();
        if self.scan.take_byte(end) {
            return Ok(false);
        }
        if !std::mem::take(&mut open.is_first) {
            if !self.scan.take_byte(b',') {
                return Err(Flaw::Expected(if open.is_map { "`,` or `}`" } else { "`,` or `]`" }));
            }
            self.scan.skip_blanks();
        }
        Ok(true)
    }

    #[inline(always)]
    fn take_name(&mut self, expected: &Needle) -> Result<bool, Flaw> {
        let is_it = self.scan.take_needle(expected);
        if is_it {
            colon(&mut self.scan)?;
        }
        Ok(is_it)
    }

    fn name(&mut self) -> Result<Result<&[u8], Token<'_>>, Flaw> {
        if self.scan.peek() != Some(b'"') {
            return Err(Flaw::Expected("a name in quotes"));
        }
        let start = self.scan;
        let name = text(&mut self.scan, self.unescaped)?;
        if !name.is_text() {
            self.scan = start;
            return Err(Flaw::Expected("a name in UTF-8"));
        }
        colon(&mut self.scan)?;
        Ok(Ok(name.bytes))
    }
}
