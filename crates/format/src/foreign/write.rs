//! Writing records of a foreign layout. A record is made in the natural layout of the same fields, the format's natural format,
//! and then gets the foreign bytes: each field its place, what is nowhere declared zero, and the variable parts behind the
//! fixed one, in the order of their fields. A field that describes others is worked out unless it was set.

use super::check::{ForeignLayout, LengthRule};
use super::piece::{At, Flaw, Head, MAX_PIECES, PieceLen, Spot, Starts, Stride, varint_bytes, zigzag};
use super::place::fits;
use super::{Form, Length, Number, Read, Test};
use crate::MAX_RECORD_BYTES;
use crate::builder::{ValueError, ValueProblem};
use crate::element::{Element, Group, Member};
use crate::field::FieldType;
use crate::format::{Format, Specs};
use crate::record::{List, Record, Value};

/// How a field is written.
#[derive(Debug)]
pub(crate) struct Put {
    pub(super) read: Read,
    /// The test that makes the field null by itself, apart from the records and variants that it lies in.
    pub(super) null: Option<Test>,
    /// Whether it may be null by itself, or as a variant.
    pub(super) is_nullable: bool,
    /// Whether others say its value, or lie in the same bytes.
    pub(super) is_derived: bool,
    /// Bytes in its place, at least.
    pub(super) size: u32,
    /// The anchor of its place.
    pub(super) anchor: u8,
    /// The anchor at its end; 0 where its length is constant, or nothing follows.
    pub(super) piece: u8,
}

impl Put {
    pub(crate) fn is_nullable(&self, which: Specs) -> bool {
        self.is_nullable || (which == Specs::Natural && self.is_derived)
    }
}

/// Appends a record of the foreign layout `format` with the values of `record`, which is of [`Format::natural_format`].
///
/// # Errors
/// A value that the layout has no way to hold, with the field; nothing was appended.
pub(crate) fn write(format: &Format, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let start = out.len();
    out.extend_from_slice(record.bytes());
    write_over(format, out, start)
}

/// Puts the record of the foreign layout `format` where the one of [`Format::natural_format`] is that `out` has from `start` on, up
/// to its end. It is made behind that one, so that nobody needs a buffer for either of them.
///
/// # Errors
/// As [`write`]; there is nothing from `start` on then.
pub(crate) fn write_over(format: &Format, out: &mut Vec<u8>, start: usize) -> Result<(), ValueError> {
    let values = out.len() - start;
    // Most layouts take no more than that.
    let mut room = format.fixed_bytes() + values;
    loop {
        out.resize(start + values + room, 0);
        let (row, place) = out[start..].split_at_mut(values);
        let (len, outcome) = write_in(format, &Record::assume_checked(format.natural_format(), row), place);
        if len > room {
            out.truncate(start + values);
            room = len;
            continue;
        }
        if outcome.is_ok() {
            out.copy_within(start + values..start + values + len, start);
        }
        out.truncate(start + if outcome.is_ok() { len } else { 0 });
        return outcome;
    }
}

/// Writes the record in `place`, which is zero, and gives its length in bytes. If that is more than there are, what was
/// written and what it came to mean nothing.
fn write_in(format: &Format, record: &Record<'_>, place: &mut [u8]) -> (usize, Result<(), ValueError>) {
    let Some(foreign) = &format.layout().foreign else {
        return (0, Err(ValueError::new(format, 0, ValueProblem::Foreign)));
    };
    let mut writer = Writer { place, len: 0, end: 0, variable: 0, starts: [0; MAX_PIECES + 1] };
    let outcome = writer.record(format, foreign, record);
    (writer.len, outcome)
}

/// A record or element: where its values are, and where they go.
#[derive(Clone, Copy)]
struct Part<'a> {
    format: &'a Format,
    foreign: &'a ForeignLayout,
    /// The same part of the natural format's record.
    values: Record<'a>,
    /// Where it starts, from the start of the record.
    base: usize,
    /// How far what lies in its place may reach, from its base.
    room: usize,
}

impl Part<'_> {
    #[cold]
    fn refuse(&self, field: usize, problem: ValueProblem) -> ValueError {
        ValueError::new(self.format, field, problem)
    }
}

/// A record that is being written.
struct Writer<'o> {
    /// Room for it; what does not lie in it is not written.
    place: &'o mut [u8],
    /// How long the record is so far.
    len: usize,
    /// Where the next variable part goes, from the start of the record.
    end: usize,
    /// The last field of the record that had a variable part, for messages.
    variable: usize,
    /// Where the record's anchors are, those of pieces that were written.
    starts: Starts,
}

impl Writer<'_> {
    /// The bytes of a part that were written, to be read.
    fn at<'w>(&'w self, part: &Part<'w>) -> At<'w> {
        At { bytes: self.bytes(), base: part.base, pieces: &part.foreign.pieces, starts: self.starts_of(part) }
    }

    /// The anchors of a part: elements have none but their start.
    fn starts_of(&self, part: &Part<'_>) -> &[usize] {
        if part.base == 0 { &self.starts } else { &[] }
    }

    /// Where a place is.
    fn spot(&self, part: &Part<'_>, spot: Spot) -> usize {
        let start =
            if spot.anchor == 0 { part.base } else { self.starts.get(usize::from(spot.anchor)).copied().unwrap_or(0) };
        start + spot.offset as usize
    }

    /// Notes that something of no constant place ends here.
    fn reach(&mut self, part: &Part<'_>, field: usize, end: usize) -> Result<(), ValueError> {
        self.end = self.end.max(end);
        self.grow(part, field, self.end)
    }

    /// Finds where a piece ends that was written: the fields behind it go there.
    fn pass(&mut self, part: &Part<'_>, field: usize, anchor: u8) -> Result<(), ValueError> {
        let Some(piece) = usize::from(anchor).checked_sub(1).and_then(|index| part.foreign.pieces.get(index)) else {
            return Ok(());
        };
        let least = self.spot(part, piece.start) + usize::from(matches!(piece.len, PieceLen::Nul | PieceLen::Varint));
        self.reach(part, field, least)?;
        let end = match piece.end(&self.at(part)) {
            Ok(end) => end,
            Err(Flaw::Short { at_least }) => at_least,
            Err(_) => return Err(part.refuse(field, ValueProblem::Contradiction)),
        };
        self.starts[usize::from(anchor)] = end;
        self.reach(part, field, end)
    }

    /// A record that takes as many bytes as a field says: has it say so, and goes on behind it.
    fn end_block(&mut self, part: &Part<'_>, group: &Group) -> Result<(), ValueError> {
        for (anchor, piece) in (1..).zip(&part.foreign.pieces) {
            let PieceLen::Block { of, len, add, least, end } = piece.len else { continue };
            if (piece.field, end) != (group.leaves.start, group.leaves.end) {
                continue;
            }
            if part.values.is_null(of) {
                self.store(part, of, len, i128::from(least) - i128::from(add))?;
            }
            let stated = len.value(&self.at(part)) + i128::from(add);
            if stated < least.into() {
                let problem = ValueProblem::StatedLength { found: stated, expected: least as usize };
                return Err(part.refuse(of, problem));
            }
            self.pass(part, of, anchor)?;
        }
        Ok(())
    }

    fn record(&mut self, format: &Format, foreign: &ForeignLayout, values: &Record<'_>) -> Result<(), ValueError> {
        let part = Part { format, foreign, values: *values, base: 0, room: usize::MAX };
        self.end = extent(&part, format.tree());
        let fixed = match foreign.rule {
            LengthRule::Fixed(len) => len as usize,
            _ => format.fixed_bytes(),
        };
        self.grow(&part, 0, fixed.max(self.end))?;
        self.members(&part, format.tree())?;
        self.finish(&part)?;
        if foreign.has_ties {
            self.compare(&part)?;
        }
        Ok(())
    }

    /// Gives the record its length.
    fn finish(&mut self, part: &Part<'_>) -> Result<(), ValueError> {
        let foreign = part.foreign;
        let mut total = self.end.max(part.format.fixed_bytes());
        match foreign.rule {
            LengthRule::Fixed(len) => self.bound(part, total, len as usize),
            LengthRule::Variant => {
                let end = self.needed(part)?;
                self.grow(part, self.variable, end)?;
                self.bound(part, total, end)
            }
            LengthRule::Field { of, load, add } => {
                total = total.max(self.needed(part)?);
                if part.values.is_null(of) {
                    let stated = total as i128 - i128::from(add);
                    self.store(part, of, load, stated)?;
                } else {
                    let stated = load.value(&self.at(part)) + i128::from(add);
                    let wrong = ValueProblem::StatedLength { found: stated, expected: total };
                    // More than is needed does no harm.
                    total = usize::try_from(stated)
                        .ok()
                        .filter(|len| *len >= total)
                        .ok_or_else(|| part.refuse(of, wrong))?;
                }
                self.grow(part, of, total)
            }
        }
    }

    /// Where the last thing ends that was written, and the variants that are there.
    fn needed(&self, part: &Part<'_>) -> Result<usize, ValueError> {
        match part.foreign.needed(part.format.fixed_bytes(), self.place) {
            Ok(end) | Err((Flaw::Short { at_least: end }, _)) => Ok(end),
            Err((Flaw::NoVariant, _)) => Err(part.refuse(self.variable, ValueProblem::NoVariant)),
            Err((_, piece)) => {
                let field = piece.map_or(self.variable, |piece| piece.field);
                Err(part.refuse(field, ValueProblem::Contradiction))
            }
        }
    }

    /// Makes the record just so long.
    fn bound(&mut self, part: &Part<'_>, needed: usize, len: usize) -> Result<(), ValueError> {
        if needed > len {
            return Err(part.refuse(self.variable, ValueProblem::NoRoom { found: needed, room: len }));
        }
        self.len = len;
        Ok(())
    }

    /// Makes the record at least so long.
    fn grow(&mut self, part: &Part<'_>, field: usize, len: usize) -> Result<(), ValueError> {
        if len > MAX_RECORD_BYTES {
            return Err(part.refuse(field, ValueProblem::RecordTooLong { found: len }));
        }
        self.len = self.len.max(len);
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        self.place.get(..self.len).unwrap_or_default()
    }

    fn members(&mut self, part: &Part<'_>, members: &[Member]) -> Result<(), ValueError> {
        members.iter().try_for_each(|member| self.member(part, member))
    }

    fn member(&mut self, part: &Part<'_>, member: &Member) -> Result<(), ValueError> {
        let group = match member {
            Member::Leaf(field) => return self.leaf(part, *field),
            Member::Group(group) => group,
        };
        if group.union.is_some() {
            return self.union(part, group);
        }
        let is_null = part.values.group_is_null(group);
        let test = group.optional.and_then(|optional| part.foreign.groups.get(optional)?.last());
        if let Some(Test::Bit { of, load, bit, when }) = test {
            self.tie_bit(part, *of, load, *bit, *when == is_null, group.leaves.start)?;
        }
        if is_null {
            return Ok(());
        }
        self.members(part, &group.members)?;
        self.end_block(part, group)
    }

    /// Has the discriminator say which variant is there.
    fn union(&mut self, part: &Part<'_>, union: &Group) -> Result<(), ValueError> {
        let there = part.values.variant(union);
        match there.and_then(|variant| determined_by(part, variant)) {
            Some((of, load, values)) => {
                let now = load.value(&self.at(part));
                if !part.values.is_null(of) {
                    if !values.contains(&now) {
                        return Err(part.refuse(of, ValueProblem::Discriminator));
                    }
                } else if now == 0 || !values.contains(&now) {
                    // Another union may have it already, and then with a value that is no zero.
                    self.store(part, of, *load, values.first().copied().unwrap_or(0))?;
                }
            }
            None => self.no_variant(part, union)?,
        }
        there.map_or(Ok(()), |variant| self.member(part, variant))
    }

    /// Has the discriminator have a value that stands for no variant.
    fn no_variant(&mut self, part: &Part<'_>, union: &Group) -> Result<(), ValueError> {
        let Some((of, load, _)) = union.members.first().and_then(|variant| determined_by(part, variant)) else {
            return Ok(());
        };
        let is_case = |value| {
            union.members.iter().filter_map(|of| determined_by(part, of)).any(|(_, _, values)| values.contains(&value))
        };
        if !is_case(load.value(&self.at(part))) {
            return Ok(());
        }
        if !part.values.is_null(of) {
            return Err(part.refuse(of, ValueProblem::Discriminator));
        }
        // There are no more cases than fields, so a free value is found before long if there is one.
        let free = (0..=crate::MAX_FIELDS as i128).find(|value| fits(*load, *value) && !is_case(*value));
        match free {
            Some(value) => self.store(part, of, *load, value),
            None => Err(part.refuse(union.leaves.start, ValueProblem::NoVariant)),
        }
    }

    fn leaf(&mut self, part: &Part<'_>, field: usize) -> Result<(), ValueError> {
        let Some(put) = part.foreign.puts.get(field) else { return Ok(()) };
        if put.anchor != 0 {
            let size = part.format.fields().get(field).map_or(0, |field| field.offset + field.size);
            let end = self.spot(part, Spot { anchor: put.anchor, offset: size });
            self.reach(part, field, end)?;
        }
        self.leaf_value(part, field, put)?;
        self.pass(part, field, put.piece)
    }

    fn leaf_value(&mut self, part: &Part<'_>, field: usize, put: &Put) -> Result<(), ValueError> {
        let value = part.values.get(field);
        if let Some(Test::Bit { of, load, bit, when }) = &put.null {
            self.tie_bit(part, *of, load, *bit, *when == value.is_null(), field)?;
        }
        if value.is_null() {
            return match &put.null {
                Some(test) => self.put_null(part, field, test),
                // How many bytes it takes has to be known before what it describes is written.
                None if put.is_derived && put.piece != 0 => match counted_by(part, field) {
                    Some(count) => self.value(part, field, &put.read, Value::Uint(count as u64)),
                    None => Err(part.refuse(field, ValueProblem::DerivedVarint)),
                },
                None if put.is_derived => Ok(()),
                None => Err(part.refuse(field, ValueProblem::NotSet)),
            };
        }
        self.value(part, field, &put.read, value)?;
        match &put.null {
            Some(test) if test.of().is_none() && test.is_null(&self.at(part)) => {
                Err(part.refuse(field, ValueProblem::StandsForNull))
            }
            _ => Ok(()),
        }
    }

    fn value(&mut self, part: &Part<'_>, field: usize, read: &Read, value: Value<'_>) -> Result<(), ValueError> {
        match (read, value) {
            (Read::Number { load, unit }, value) => {
                let number = number(value, *unit).map_err(|problem| part.refuse(field, problem))?;
                self.store(part, field, *load, number)
            }
            (Read::Float(load), Value::Float(value)) => {
                let bits = if load.bytes == 4 { (value as f32).to_bits().into() } else { value.to_bits() };
                self.put_number(load, part, bits);
                Ok(())
            }
            (Read::Wide { at, is_big }, Value::Decimal { unscaled, .. }) => {
                let bytes = if *is_big { unscaled.to_be_bytes() } else { unscaled.to_le_bytes() };
                self.put_bytes(self.spot(part, *at), &bytes);
                Ok(())
            }
            (Read::Text { at, len, pads_space }, Value::Text(text)) => {
                if *pads_space && text.last() == Some(&b' ') {
                    return Err(part.refuse(field, ValueProblem::EndsInBlank));
                }
                self.put_text(self.spot(part, *at), (*len).into(), *pads_space, text);
                Ok(())
            }
            (Read::Nul { at }, Value::Text(text)) => {
                if text.contains(&0) {
                    return Err(part.refuse(field, ValueProblem::HoldsNul));
                }
                let at = self.spot(part, *at);
                self.reach(part, field, at + text.len() + 1)?;
                self.put_bytes(at, text);
                self.put_bytes(at + text.len(), &[0]);
                Ok(())
            }
            (Read::Slot { start, len, base }, Value::Text(bytes) | Value::Bytes(bytes)) => {
                let at = self.append(part, field, (start, len, *base), bytes.len(), bytes.len())?;
                self.put_bytes(at, bytes);
                Ok(())
            }
            (Read::Slot { start, len, base }, Value::List(list)) => {
                let bytes = list.len().saturating_mul(element_of(part, field).map_or(0, |of| of.stride as usize));
                let at = self.append(part, field, (start, len, *base), list.len(), bytes)?;
                self.elements(part, field, list, at)
            }
            (Read::Here { at, head, count, stride }, Value::Text(bytes) | Value::Bytes(bytes)) => {
                let body = self.head(part, field, *at, (head, count, stride), (bytes.len(), 1))?;
                self.put_bytes(body, bytes);
                Ok(())
            }
            (Read::Here { at, head, count, stride }, Value::List(list)) => {
                let apart = element_of(part, field).map_or(0, |element| element.stride);
                let body = self.head(part, field, *at, (head, count, stride), (list.len(), apart))?;
                if let Length::Field { .. } = count {
                    if part.base == 0 {
                        self.variable = field;
                    }
                    let needed = body - part.base + list.len().saturating_mul(apart as usize);
                    if needed > part.room {
                        return Err(part.refuse(field, ValueProblem::NoRoom { found: needed, room: part.room }));
                    }
                }
                self.elements(part, field, list, body)
            }
            (_, value) => {
                let ty = part.format.fields().get(field).map_or(FieldType::List, |field| field.ty);
                Err(part.refuse(field, ValueProblem::WrongType { found: value.kind(), ty }))
            }
        }
    }

    /// The number in front of elements or bytes, and how far they are apart. Gives where they go.
    fn head(
        &mut self,
        part: &Part<'_>,
        field: usize,
        at: Spot,
        (head, count, stride): (&Head, &Length, &Stride),
        (found, apart): (usize, u32),
    ) -> Result<usize, ValueError> {
        let bytes = match head {
            Head::Bytes(bytes) => *bytes as usize,
            Head::Varint => varint_bytes(found as u64).1,
        };
        let body = self.spot(part, at) + bytes;
        match count {
            Length::Fixed(_) => return Ok(body),
            Length::Field { of, load } => self.tie_count(part, *of, *load, found)?,
            Length::Head(load) => {
                self.reach(part, field, body)?;
                self.store(part, field, *load, found as i128)?;
            }
        }
        if let Stride::Stated { load, .. } = stride {
            self.store(part, field, *load, apart.into())?;
        }
        if part.foreign.puts.get(field).is_some_and(|put| put.piece != 0) {
            self.reach(part, field, body.saturating_add(found.saturating_mul(apart as usize)))?;
        }
        Ok(body)
    }

    /// The elements of a list, the first at `at`.
    fn elements(&mut self, part: &Part<'_>, field: usize, list: List<'_>, at: usize) -> Result<(), ValueError> {
        let Some(element) = element_of(part, field) else { return Ok(()) };
        let Some(foreign) = &element.format.layout().foreign else { return Ok(()) };
        let room = element.stride as usize;
        for index in 0..list.len() {
            let Some(values) = list.record(index) else { break };
            let inner = Part { format: &element.format, foreign, values, base: at + index * room, room };
            self.members(&inner, element.format.tree()).map_err(|error| {
                let name = part.format.fields().get(field).map_or("", |field| field.name.as_str());
                error.in_element(name, index, !element.is_record)
            })?;
        }
        Ok(())
    }

    /// Room for a variable part; the slot then says where it is.
    fn append(
        &mut self,
        part: &Part<'_>,
        field: usize,
        (start, len, base): (&Number, &Number, u32),
        count: usize,
        bytes: usize,
    ) -> Result<usize, ValueError> {
        let base = base as usize;
        let at = if bytes == 0 { base } else { self.end.max(base) };
        self.end = self.end.max(at.saturating_add(bytes));
        self.grow(part, field, self.end)?;
        if part.base == 0 {
            self.variable = field;
        }
        for (number, value) in [(start, at - base), (len, count)] {
            if !fits(*number, value as i128) {
                return Err(part.refuse(field, ValueProblem::SlotRange { found: value, bits: number.bits }));
            }
            self.put_number(number, part, value as u64);
        }
        Ok(at)
    }

    /// A whole number in its bits, if it has enough of them.
    fn store(&mut self, part: &Part<'_>, field: usize, load: Number, number: i128) -> Result<(), ValueError> {
        if !fits(load, number) {
            let problem = ValueProblem::BitRange { found: number, bits: load.bits, signed: load.signed };
            return Err(part.refuse(field, problem));
        }
        if load.form.is_varint() {
            let bytes = varint_bytes(if load.form == Form::Zigzag { zigzag(number as i64) } else { number as u64 });
            let end = self.spot(part, load.at).saturating_add(bytes.1);
            self.reach(part, field, end)?;
        }
        self.put_number(&load, part, number as u64);
        Ok(())
    }

    /// Has field `of` say how many elements a list has.
    fn tie_count(&mut self, part: &Part<'_>, of: usize, load: Number, count: usize) -> Result<(), ValueError> {
        if part.values.is_null(of) {
            return self.store(part, of, load, count as i128);
        }
        let found = load.value(&self.at(part));
        if found == count as i128 {
            return Ok(());
        }
        Err(part.refuse(of, ValueProblem::StatedCount { found, expected: count }))
    }

    /// Has a bit of field `of` say whether `field` is null.
    fn tie_bit(
        &mut self,
        part: &Part<'_>,
        of: usize,
        load: &Number,
        bit: u8,
        wanted: bool,
        field: usize,
    ) -> Result<(), ValueError> {
        let one = Number { shift: load.shift + bit, bits: 1, signed: false, ..*load };
        if part.values.is_null(of) {
            self.put_number(&one, part, wanted.into());
        } else if (one.raw(&self.at(part)) != 0) != wanted {
            return Err(part.refuse(field, ValueProblem::NullBit));
        }
        Ok(())
    }

    fn put_null(&mut self, part: &Part<'_>, field: usize, test: &Test) -> Result<(), ValueError> {
        match test {
            Test::Sentinel { load, value } => self.store(part, field, *load, *value)?,
            Test::Float { load, bits } => {
                let nan = if load.bytes == 4 { f32::NAN.to_bits().into() } else { f64::NAN.to_bits() };
                self.put_number(load, part, bits.unwrap_or(nan));
            }
            Test::Text { at, len, pads_space, text } => {
                self.put_text(self.spot(part, *at), (*len).into(), *pads_space, text);
            }
            Test::OneOf { .. } | Test::Bit { .. } => {}
        }
        Ok(())
    }

    /// The low bits of a number in their place; the others there stay.
    fn put_number(&mut self, load: &Number, part: &Part<'_>, value: u64) {
        let at = self.spot(part, load.at);
        if load.form.is_varint() {
            let (bytes, len) = varint_bytes(if load.form == Form::Zigzag { zigzag(value as i64) } else { value });
            self.put_bytes(at, &bytes[..len]);
            return;
        }
        let len = usize::from(load.bytes);
        let Some(place) = self.place.get_mut(at..at + len) else { return };
        let whole = Number { at: Spot::default(), shift: 0, bits: load.bytes * 8, signed: false, ..*load };
        let mask = if load.bits == 64 { u64::MAX } else { (1 << load.bits) - 1 };
        let word = whole.raw(&At::of(place, 0, &[])) & !(mask << load.shift) | (value & mask) << load.shift;
        if load.form == Form::Big {
            place.copy_from_slice(&word.to_be_bytes()[8 - len..]);
        } else {
            place.copy_from_slice(&word.to_le_bytes()[..len]);
        }
    }

    fn put_bytes(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.place.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn put_text(&mut self, at: usize, len: usize, pads_space: bool, text: &[u8]) {
        let place = self.place.get_mut(at..at + len).and_then(|place| place.split_at_mut_checked(text.len()));
        if let Some((head, padding)) = place {
            head.copy_from_slice(text);
            padding.fill(if pads_space { b' ' } else { 0 });
        }
    }

    /// Whether the written record has the values that it was written from: fields may have given one derived field
    /// different values, or lie in the same bytes.
    fn compare(&self, part: &Part<'_>) -> Result<(), ValueError> {
        let bytes = self.bytes();
        let found = match Record::check(part.format, bytes) {
            Ok(record) if record.bytes().len() == bytes.len() => record,
            outcome => {
                let field = outcome.err().and_then(|error| error.problem.field());
                return Err(part.refuse(field.unwrap_or(0), ValueProblem::Contradiction));
            }
        };
        match difference(part.format.tree(), &found, &part.values) {
            None => Ok(()),
            Some(field) => Err(part.refuse(field, ValueProblem::Contradiction)),
        }
    }
}

/// Where the places end of all that is there, and the lists that lie there with them.
fn extent(part: &Part<'_>, members: &[Member]) -> usize {
    let of = |member: &Member| match member {
        Member::Leaf(field) => {
            let end = part.format.fields().get(*field).map_or(0, |field| field.offset as usize + field.size as usize);
            match (part.foreign.puts.get(*field).map(|put| &put.read), part.values.get(*field)) {
                // Behind pieces nothing is known yet; there are no slots then, which this is for.
                (Some(Read::Here { at, count: Length::Field { .. }, .. }), Value::List(list)) if at.anchor == 0 => {
                    list_end(part, *field, at.offset, list.len())
                }
                _ => end,
            }
        }
        Member::Group(group) if group.union.is_some() => {
            part.values.variant(group).map_or(0, |variant| extent(part, std::slice::from_ref(variant)))
        }
        Member::Group(group) if part.values.group_is_null(group) => 0,
        Member::Group(group) => extent(part, &group.members),
    };
    members.iter().map(of).max().unwrap_or(0)
}

fn element_of<'a>(part: &Part<'a>, field: usize) -> Option<&'a Element> {
    part.format.layout().element(field)
}

fn list_end(part: &Part<'_>, field: usize, offset: u32, count: usize) -> usize {
    let stride = element_of(part, field).map_or(0, |element| element.stride as usize);
    count.saturating_mul(stride).saturating_add(offset as usize)
}

/// How many elements the list has whose number is in a field.
fn counted_by(part: &Part<'_>, field: usize) -> Option<usize> {
    let is_counted = |put: &Put| matches!(put.read, Read::Here { count: Length::Field { of, .. }, .. } if of == field);
    match part.values.get(part.foreign.puts.iter().position(is_counted)?) {
        Value::List(list) => Some(list.len()),
        // Null, or in a variant that is not there.
        _ => Some(0),
    }
}

/// The field that says whether a variant is there, as a number, and its values that say so.
fn determined_by<'a>(part: &Part<'a>, variant: &Member) -> Option<(usize, &'a Number, &'a [i128])> {
    let test = match variant {
        Member::Leaf(field) => {
            let own = part.foreign.puts.get(*field)?.null.is_some();
            let tests = &part.foreign.access.get(*field)?.as_ref()?.tests;
            tests.iter().rev().nth(usize::from(own))?
        }
        Member::Group(group) => part.foreign.groups.get(group.optional?)?.last()?,
    };
    match test {
        Test::OneOf { of, load, values } => Some((*of, load, values)),
        _ => None,
    }
}

/// A value as the number that stands for it, where a unit is `unit` nanoseconds.
fn number(value: Value<'_>, unit: i64) -> Result<i128, ValueProblem> {
    Ok(match value {
        Value::Bool(value) => value.into(),
        Value::Int(value) => value.into(),
        Value::Uint(value) => value.into(),
        Value::Enum { number, .. } => number.into(),
        Value::Decimal { unscaled, .. } => unscaled,
        Value::Timestamp(nanoseconds) if nanoseconds % unit == 0 => (nanoseconds / unit).into(),
        Value::Timestamp(nanoseconds) => return Err(ValueProblem::Unit { found: nanoseconds, unit }),
        other => return Err(ValueProblem::WrongType { found: other.kind(), ty: FieldType::I64 }),
    })
}

/// The first field in which two records differ; the second may leave open what others say.
fn difference(members: &[Member], found: &Record<'_>, wanted: &Record<'_>) -> Option<usize> {
    let foreign = found.format().layout().foreign.as_ref()?;
    members.iter().find_map(|member| match member {
        Member::Leaf(field) => {
            let is_open = foreign.puts.get(*field).is_some_and(|put| put.is_derived) && wanted.is_null(*field);
            (!is_open && !same(found.get(*field), wanted.get(*field))).then_some(*field)
        }
        Member::Group(group) => match (found.group_is_null(group), wanted.group_is_null(group)) {
            (true, true) => None,
            (false, false) if group.union.is_some() => match (found.variant(group), wanted.variant(group)) {
                (Some(one), Some(other)) if std::ptr::eq(one, other) => {
                    difference(std::slice::from_ref(one), found, wanted)
                }
                _ => Some(group.leaves.start),
            },
            (false, false) => difference(&group.members, found, wanted),
            _ => Some(group.leaves.start),
        },
    })
}

fn same(found: Value<'_>, wanted: Value<'_>) -> bool {
    match (found, wanted) {
        (Value::Float(found), Value::Float(wanted)) => {
            found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan())
        }
        (Value::Enum { number: found, .. }, Value::Enum { number: wanted, .. }) => found == wanted,
        (Value::List(found), Value::List(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted.iter()).all(|(found, wanted)| same(found, wanted))
        }
        (Value::Record(found), Value::Record(wanted)) => difference(found.format().tree(), &found, &wanted).is_none(),
        (found, wanted) => found == wanted,
    }
}
