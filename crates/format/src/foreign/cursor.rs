//! Where fields go: behind one another, at a place that they state, or behind what has no constant length.

use std::fmt::Write as _;

use super::Read;
use super::attributes::Attributes;
use super::head::Mode;
use super::kind::ForeignType;
use super::piece::{Head, MAX_PIECES, Piece, PieceLen, Spot, reach};
use super::place::{Placer, Scope, align_of};
use super::span::shared;
use super::write::Put;
use crate::MAX_FIXED_BYTES;
use crate::field::Field;
use crate::notation::{Node, Quoted, shorten};
use crate::problem::{FormatError, FormatProblem};

impl Placer<'_> {
    /// Goes to the place of a nested record or union.
    pub(super) fn go_to(
        &mut self,
        node: &Node<'_>,
        name: &str,
        attributes: &Attributes,
        scope: &Scope,
    ) -> Result<(), FormatError> {
        match self.stated_place(node, name, attributes, scope)? {
            Some(place) => (self.at, self.is_lost) = (place, false),
            None if self.head.mode == Mode::Aligned => {
                let align = node.inner.iter().map(align_of).max().unwrap_or(1);
                self.at.offset = self.at.offset.next_multiple_of(align);
            }
            None => {}
        }
        Ok(())
    }

    /// The place that `at` and `after` speak of.
    pub(super) fn stated_place(
        &self,
        node: &Node<'_>,
        name: &str,
        attributes: &Attributes,
        scope: &Scope,
    ) -> Result<Option<Spot>, FormatError> {
        let offset = attributes.at.unwrap_or(0);
        let Some(after) = &attributes.after else { return Ok(attributes.at.map(Spot::fixed)) };
        let names = scope.names(after);
        let found = names.iter().find_map(|name| self.piece_names.iter().position(|piece| piece == name));
        match found {
            Some(index) => Ok(Some(Spot { anchor: index as u8 + 1, offset })),
            None => {
                let flaw = format!("`{}` is no field of variable length in front of it", shorten(after));
                Err(self.refuse(node, name, flaw))
            }
        }
    }

    /// Behind the field before; bits of the same bytes stay with these.
    pub(super) fn next_place(
        &self,
        node: &Node<'_>,
        name: &str,
        kind: &ForeignType,
        attributes: &Attributes,
        align: u32,
    ) -> Result<Spot, FormatError> {
        if self.head.mode == Mode::Explicit {
            return Err(self.refuse(node, name, "it needs its place: `at N`"));
        }
        if self.is_lost {
            let flaw =
                "nothing lies behind a union whose variants have no constant length, unless it says where: `at N`";
            return Err(self.refuse(node, name, flaw));
        }
        if self.at.anchor != 0 && self.head.mode == Mode::Aligned {
            let flaw = "behind a field of variable length there is no alignment: use `packed`, or `after FIELD at N`";
            return Err(self.refuse(node, name, flaw));
        }
        if let (Some((low, _)), Some(last)) = (attributes.bits, self.spans.last())
            && last.bits.is_some_and(|(_, high)| high <= low)
            && last.start.anchor == self.at.anchor
            && last.end - last.start.offset == kind.size
            && last.end == self.at.offset
        {
            return Ok(last.start);
        }
        Ok(Spot { offset: self.at.offset.next_multiple_of(align), ..self.at })
    }

    /// Where a field ends that starts here, or its head.
    pub(super) fn end_of(&self, node: &Node<'_>, name: &str, at: Spot, kind: &ForeignType) -> Result<u32, FormatError> {
        let end = at.offset.checked_add(kind.size).filter(|end| *end as usize <= MAX_FIXED_BYTES);
        end.ok_or_else(|| self.refuse(node, name, "it ends beyond the first MiB of the record"))
    }

    /// A place, as it is written down.
    pub(super) fn place_text(&self, at: Spot) -> String {
        let after = usize::from(at.anchor).checked_sub(1).and_then(|index| self.piece_names.get(index));
        let after = after.map(|name| format!(" after {}", Quoted(name))).unwrap_or_default();
        format!(" at {}{after}", at.offset)
    }

    /// Notes that a field ends here.
    pub(super) fn reach(&mut self, end: Spot, scope: &Scope) {
        reach(&mut self.ends, end);
        if scope.variants.is_empty() {
            reach(&mut self.fixed, end);
        }
    }

    /// Goes on behind what has no constant length; gives the anchor there, or 0 where nothing may follow.
    pub(super) fn piece(
        &mut self,
        node: &Node<'_>,
        name: &str,
        piece: Piece,
        scope: &Scope,
    ) -> Result<u8, FormatError> {
        let is_counted = matches!(piece.len, PieceLen::Run { head: Head::Bytes(0), .. });
        if !self.path.is_empty() || scope.may_be_null() {
            if is_counted {
                return Ok(0);
            }
            let flaw = "in an element of a list, and in a record that may be null, fields have constant lengths";
            return Err(self.refuse(node, name, flaw));
        }
        let number = match piece.len {
            PieceLen::Run { count: number, .. } | PieceLen::Block { len: number, .. } => number.at.anchor,
            _ => 0,
        };
        if !self.leads_to(number, piece.start.anchor) {
            return Err(self.refuse(node, name, "what says how long it is does not lie in front of it"));
        }
        if self.pieces.len() >= MAX_PIECES {
            let flaw = format!("a layout has at most {MAX_PIECES} fields of variable length");
            return Err(self.refuse(node, name, flaw));
        }
        self.pieces.push(piece);
        self.piece_names.push(name.to_owned());
        self.at = Spot { anchor: self.pieces.len() as u8, offset: 0 };
        self.reach(self.at, scope);
        Ok(self.at.anchor)
    }

    /// Whether an anchor is passed on the way to another one, or is that.
    fn leads_to(&self, anchor: u8, to: u8) -> bool {
        let mut at = to;
        while at > anchor {
            at = self.pieces.get(usize::from(at) - 1).map_or(0, |piece| piece.start.anchor);
        }
        at == anchor
    }

    /// A record that takes as many bytes as a field says.
    pub(super) fn block(
        &mut self,
        node: &Node<'_>,
        (start, path, leaves): (Spot, &str, std::ops::Range<usize>),
        (of, add): &(String, i64),
        scope: &Scope,
    ) -> Result<(), FormatError> {
        if self.at.anchor != start.anchor || self.is_lost {
            return Err(self.refuse(node, path, "in a record with a `length`, fields have constant lengths"));
        }
        let (of, len) = self.find_number(node, of, scope)?;
        let _ = write!(self.body, "{} length {} {add:+}", self.place_text(start), Quoted(&self.fields[of].name));
        let inner = self.fields.iter().zip(&self.puts).take(leaves.end).skip(leaves.start);
        let ends = inner.filter(|(_, put)| put.anchor == start.anchor).map(|(field, _)| field.offset + field.size);
        let least = ends.max().unwrap_or(0).saturating_sub(start.offset);
        let len = PieceLen::Block { of, len, add: *add, least, end: leaves.end };
        self.piece(node, path, Piece { start, field: leaves.start, len }, scope).map(|_| ())
    }

    /// Refuses fields that share bytes without saying so.
    pub(super) fn check_overlaps(&self) -> Result<(), FormatError> {
        let Some((first, second)) = shared(&self.spans) else { return Ok(()) };
        let flaw = format!("it shares bytes with `{}`; `overlay` says that it may", first.name);
        let name = if self.path.is_empty() { second.name.clone() } else { format!("{}.{}", self.path, second.name) };
        Err(FormatError { line: Some(second.line), problem: FormatProblem::Foreign { name, flaw } })
    }

    /// Refuses slots beside fields of variable length: what slots speak of would lie behind these, and a record is written
    /// in one go. A list whose count is in a field may end the fixed part, as nothing lies behind it.
    pub(super) fn check_slots(&self, line: usize) -> Result<(), FormatError> {
        let is_simple = self.puts.iter().all(|put| put.anchor == 0)
            && self.pieces.iter().all(|piece| matches!(piece.len, PieceLen::Run { head: Head::Bytes(0), .. }));
        if is_simple || !has_slots(&self.puts, &self.fields) {
            return Ok(());
        }
        let flaw = "slots, and fields of variable length with others behind them, do not go together".to_owned();
        Err(FormatError { line: Some(line), problem: FormatProblem::Foreign { name: "layout".to_owned(), flaw } })
    }
}

fn has_slots(puts: &[Put], fields: &[Field]) -> bool {
    puts.iter().any(|put| matches!(put.read, Read::Slot { .. }))
        || fields.iter().filter_map(Field::element).any(|element| {
            let foreign = element.format.layout().foreign.as_ref();
            foreign.is_some_and(|foreign| has_slots(&foreign.puts, element.format.fields()))
        })
}
