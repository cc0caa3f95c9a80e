//! The tokens of a record's element.

use super::ITEM;
use super::decode::{is_blank, local};
use super::tape::{Piece, Pieces, Tape};
use crate::builder::ByteRun;
use crate::scan::Needle;
use crate::tokens::{Flaw, Open, Token, Tokens};

/// The tokens of a record. The meaning of an element or an attribute depends on what is asked for: they are members of
/// maps, and elements that have the same name and follow each other are a list.
pub(super) struct XmlTokens<'a, 's> {
    tape: &'a Tape,
    pieces: Pieces<'a>,
    /// Whether what has no place where it is is passed over.
    ignore_unknown: bool,
    /// The last text that had elements in between.
    gathered: &'s mut Vec<u8>,
}

impl<'a, 's> XmlTokens<'a, 's> {
    pub(super) fn new(tape: &'a Tape, ignore_unknown: bool, gathered: &'s mut Vec<u8>) -> Self {
        Self { tape, pieces: tape.pieces(), ignore_unknown, gathered }
    }

    /// The next piece that counts where only elements are wanted; it is not taken, but the texts before it are.
    fn member(&mut self) -> Piece<'a> {
        loop {
            let piece = self.pieces.peek();
            match piece {
                Piece::Text(text) if self.ignore_unknown || is_blank(text.bytes) => self.pieces.skip(),
                _ => return piece,
            }
        }
    }

    /// Goes on to the next element of a list that lies in another.
    fn item(&mut self) -> bool {
        loop {
            match self.pieces.peek() {
                Piece::Element { name, .. } if local(name) == ITEM.as_bytes() => return true,
                Piece::End => {
                    self.pieces.next();
                    return false;
                }
                _ => self.pieces.skip(),
            }
        }
    }

    /// Whether there are only blanks up to the end of the element that was begun, and attributes that are passed over.
    fn is_empty(&self) -> bool {
        let mut pieces = self.pieces;
        loop {
            match pieces.next() {
                Piece::Text(text) if is_blank(text.bytes) => {}
                Piece::Attribute { .. } if self.ignore_unknown => {}
                piece => return matches!(piece, Piece::End),
            }
        }
    }

    /// Ends the element that was begun, if there are only blanks in it.
    fn ends(&mut self) -> bool {
        let ends = self.is_empty();
        if ends {
            self.pieces.skip_rest();
        }
        ends
    }

    /// The content of an element that is a list, and is none of the list's elements.
    fn stray_in_list(&self) -> Option<Token<'a>> {
        let mut pieces = self.pieces;
        loop {
            match pieces.next() {
                Piece::Element { name, .. } if local(name) == ITEM.as_bytes() => pieces.skip_rest(),
                Piece::Text(text) if is_blank(text.bytes) => {}
                Piece::End => return None,
                piece => return Some(stray(piece)),
            }
        }
    }
}

/// An element that says that it is null, and is not empty.
const FULL_NIL: Token<'static> = Token::Other("an element with `xsi:nil` that is not empty");

/// A piece where there is to be none.
fn stray(piece: Piece<'_>) -> Token<'_> {
    match piece {
        Piece::Element { name, .. } => Token::Stray { what: "an element", text: name },
        Piece::Attribute { name, .. } => Token::Stray { what: "an attribute", text: name },
        Piece::Text(text) => Token::Stray { what: "the text", text: text.bytes },
        Piece::End => Token::Other("nothing"),
    }
}

impl<'a> Tokens for XmlTokens<'a, '_> {
    const MAP: &'static str = "an element";
    const ARRAY: &'static str = "elements";
    const NAME: &'static str = "elements of the format's fields";
    const TIMES: &'static str = "RFC 3339, such as 2013-01-01T10:00:00Z";
    const LACKS_TYPES: bool = true;
    const NAMES_ARE_VALUES: bool = false;
    const IS_TYPED: bool = false;

    type Mark = Pieces<'a>;

    fn mark(&self) -> Pieces<'a> {
        self.pieces
    }

    fn go_to(&mut self, mark: Pieces<'a>) {
        self.pieces = mark;
    }

    /// The text of an element or attribute.
    fn value(&mut self) -> Result<Token<'_>, Flaw> {
        let Self { pieces, ignore_unknown, gathered, .. } = self;
        let is_nil = match pieces.next() {
            Piece::Element { nil, .. } => nil == Some(true),
            Piece::Attribute { value, .. } => return Ok(Token::Untyped(value)),
            piece => return Ok(stray(piece)),
        };
        gathered.clear();
        let mut text = ByteRun::alone(&[]);
        loop {
            match pieces.next() {
                Piece::End => break,
                Piece::Text(run) if text.bytes.is_empty() => text = run,
                Piece::Text(run) => {
                    if gathered.is_empty() {
                        gathered.extend_from_slice(text.bytes);
                    }
                    gathered.extend_from_slice(run.bytes);
                }
                piece if !*ignore_unknown => return Ok(stray(piece)),
                Piece::Element { .. } => pieces.skip_rest(),
                Piece::Attribute { .. } => {}
            }
        }
        if !gathered.is_empty() {
            text = ByteRun::alone(gathered);
        }
        Ok(match is_nil {
            true if is_blank(text.bytes) => Token::Null,
            true => FULL_NIL,
            false => Token::Untyped(text),
        })
    }

    /// An element with members in it.
    fn map(&mut self) -> Result<Token<'_>, Flaw> {
        Ok(match self.pieces.next() {
            Piece::Element { nil: Some(true), .. } => {
                if self.ends() {
                    Token::Null
                } else {
                    FULL_NIL
                }
            }
            Piece::Element { .. } => Token::Map(Open::map(None)),
            piece => stray(piece),
        })
    }

    /// A list in a list is an element with the inner one's elements in it. Any other is this element and those that follow
    /// under its name, or one empty element that says that the list is null or not.
    fn array(&mut self, is_element: bool) -> Result<Token<'_>, Flaw> {
        let first = self.pieces;
        let nil = match self.pieces.next() {
            Piece::Element { nil, .. } => nil,
            piece => return Ok(stray(piece)),
        };
        if nil == Some(true) {
            return Ok(if self.ends() { Token::Null } else { FULL_NIL });
        }
        if is_element {
            let stray = if self.ignore_unknown { None } else { self.stray_in_list() };
            return Ok(stray.unwrap_or(Token::Array(Open::array(None))));
        }
        Ok(match nil {
            // There is no item in it to come.
            Some(false) if self.is_empty() => Token::Array(Open::array(None)),
            _ => {
                self.pieces = first;
                Token::Array(Open { from: Some(first.left()), ..Open::array(None) })
            }
        })
    }

    fn any(&mut self) -> Result<Token<'_>, Flaw> {
        let piece = self.pieces.peek();
        self.pieces.skip();
        Ok(stray(piece))
    }

    fn more(&mut self, open: &mut Open) -> Result<bool, Flaw> {
        Ok(match open.from {
            _ if open.is_map => {
                let is_end = matches!(self.member(), Piece::End);
                if is_end {
                    self.pieces.next();
                }
                !is_end
            }
            None => self.item(),
            Some(_) if std::mem::take(&mut open.is_first) => true,
            Some(left) => {
                let first = Pieces::with_left(self.tape, left).peek();
                match (first, self.member()) {
                    (Piece::Element { name: first, .. }, Piece::Element { name, .. }) => first == name,
                    _ => false,
                }
            }
        })
    }

    fn take_name(&mut self, expected: &Needle) -> Result<bool, Flaw> {
        // The name stays in front of the value, for which it is taken.
        Ok(self.pieces.written_name().and_then(|name| expected.behind(name)).is_some())
    }

    fn name(&mut self) -> Result<Result<&[u8], Token<'_>>, Flaw> {
        Ok(match self.pieces.peek() {
            Piece::Element { name, .. } | Piece::Attribute { name, .. } => Ok(name),
            piece => Err(stray(piece)),
        })
    }

    fn short_name(name: &[u8]) -> Option<&[u8]> {
        Some(local(name)).filter(|short| short.len() < name.len())
    }
}
