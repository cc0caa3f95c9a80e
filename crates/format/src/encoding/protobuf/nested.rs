//! Messages in messages, lists, and fields where the last one counts.

use super::decode::{Table, What, Wrong};
use super::plan::{FieldPlan, ListPlan, MAX_MARKS, MessagePlan, Nested, Op};
use super::wire::{self, Flaw, Wire};
use crate::builder::{RecordBuilder, ValueError};
use crate::encoding::reader::Reader;

/// The fields so far in a message.
#[derive(Default)]
pub(super) struct Marks {
    seen: [u64; MAX_MARKS / 64],
    /// All that the message has of it has been taken: what comes is passed over.
    done: [u64; MAX_MARKS / 64],
}

impl Marks {
    /// Notes that there was such a field; whether there was one before.
    fn see(&mut self, mark: u16) -> bool {
        let (word, bit) = place(mark);
        let was = self.seen[word] & bit != 0;
        self.seen[word] |= bit;
        was
    }

    fn is_seen(&self, mark: u16) -> bool {
        let (word, bit) = place(mark);
        self.seen[word] & bit != 0
    }

    fn forget(&mut self, mark: u16) {
        let (word, bit) = place(mark);
        self.seen[word] &= !bit;
        self.done[word] &= !bit;
    }

    fn finish(&mut self, mark: u16) {
        let (word, bit) = place(mark);
        self.done[word] |= bit;
    }

    fn is_done(&self, mark: u16) -> bool {
        let (word, bit) = place(mark);
        self.done[word] & bit != 0
    }
}

fn place(mark: u16) -> (usize, u64) {
    (usize::from(mark) / 64 % (MAX_MARKS / 64), 1 << (mark % 64))
}

impl Table {
    /// Takes away the variant that was there before this one.
    pub(super) fn enter_variant(
        &self,
        builder: &mut RecordBuilder,
        plan: &MessagePlan,
        step: &FieldPlan,
        marks: &mut Marks,
    ) -> Result<(), Wrong> {
        let Some(oneof) = plan.oneofs.get(usize::from(step.oneof) - 1) else {
            return Ok(());
        };
        if marks.see(oneof.mark) && !marks.is_seen(step.mark) {
            oneof.marks.iter().for_each(|mark| marks.forget(*mark));
            builder.put_variants_null(&oneof.group).map_err(|problem| What::from(problem).at(step.label))?;
        }
        if !matches!(step.op, Op::Nested { .. }) {
            marks.see(step.mark);
        }
        Ok(())
    }

    /// Reads what is nested: `message` is all of the message that it is in, `reader` behind its tag.
    pub(super) fn nested<'m>(
        &self,
        builder: &mut RecordBuilder,
        index: u32,
        step: &FieldPlan,
        (message, tag, reader): (&'m [u8], u32, &mut Reader<'m>),
        marks: &mut Marks,
    ) -> Result<(), Wrong> {
        let Some(nested) = self.plan.nested.get(index as usize) else {
            return Ok(());
        };
        if marks.is_done(step.mark) {
            return Ok(reader.skip(tag)?);
        }
        let was_seen = marks.see(step.mark);
        if let Nested::List(list) = nested {
            if was_seen {
                // Elements that do not follow each other: all of them, once more.
                marks.finish(step.mark);
                reader.skip(tag)?;
                return self.list(builder, list, &mut Reader::new(message), step.label);
            }
            return self.list_from(builder, list, tag, reader, step.label);
        }
        let whole;
        let mut content = content(step, tag, reader).map_err(|what| what.at(step.label))?;
        if was_seen {
            // A message that comes in several parts is as one of all their bytes.
            marks.finish(step.mark);
            whole = gather(message, step).map_err(|what| what.at(step.label))?;
            content = &whole;
        }
        match nested {
            Nested::Message { group, plan } => {
                if let Some(group) = group {
                    builder.put_group(group, false).map_err(|problem| What::from(problem).at(step.label))?;
                }
                self.begin(builder, plan)?;
                self.message(builder, plan, content)
            }
            Nested::Wrapped(list) | Nested::List(list) => {
                self.list(builder, list, &mut Reader::new(content), step.label)
            }
        }
    }

    /// The list whose first element's tag has been read, and the elements that follow at once.
    fn list_from(
        &self,
        builder: &mut RecordBuilder,
        list: &ListPlan,
        tag: u32,
        reader: &mut Reader<'_>,
        label: u32,
    ) -> Result<(), Wrong> {
        let refuse = |error: ValueError| What::from(error).at(label);
        builder.begin_list(list.field).map_err(refuse)?;
        self.elements(builder, list, tag, reader, label)?;
        loop {
            let mut ahead = *reader;
            if ahead.is_empty() {
                break;
            }
            let next = ahead.tag()?;
            if wire::number(next) != wire::number(tag) {
                break;
            }
            *reader = ahead;
            self.elements(builder, list, next, reader, label)?;
        }
        builder.end_list().map_err(refuse)
    }

    /// All elements of the list in a message.
    fn list(
        &self,
        builder: &mut RecordBuilder,
        list: &ListPlan,
        reader: &mut Reader<'_>,
        label: u32,
    ) -> Result<(), Wrong> {
        let refuse = |error: ValueError| What::from(error).at(label);
        builder.begin_list(list.field).map_err(refuse)?;
        while !reader.is_empty() {
            let tag = reader.tag()?;
            match wire::number(tag) == wire::number(list.element.tag) {
                true => self.elements(builder, list, tag, reader, label)?,
                false => reader.skip(tag)?,
            }
        }
        builder.end_list().map_err(refuse)
    }

    /// The elements behind one tag: an element, or several behind one length.
    fn elements(
        &self,
        builder: &mut RecordBuilder,
        list: &ListPlan,
        tag: u32,
        reader: &mut Reader<'_>,
        label: u32,
    ) -> Result<(), Wrong> {
        let element = &list.element;
        if tag != element.tag && list.packed.is_some_and(|(packed, _)| packed == tag) {
            let mut inner = Reader::new(reader.length_delimited().map_err(Flaw::from)?);
            while !inner.is_empty() {
                self.single(builder, element, element.tag, &mut inner)?;
            }
            return Ok(());
        }
        let refuse = |error: ValueError| What::from(error).at(label);
        match (&list.record, element.op) {
            (Some(plan), _) => {
                let content = content(element, tag, reader).map_err(|what| what.at(label))?;
                builder.begin_element().map_err(refuse)?;
                self.begin(builder, plan)?;
                self.message(builder, plan, content)?;
                builder.end_element().map_err(refuse)
            }
            (None, Op::Nested { index, .. }) => {
                let content = content(element, tag, reader).map_err(|what| what.at(element.label))?;
                match self.plan.nested.get(index as usize) {
                    Some(Nested::Wrapped(inner)) => self.list(builder, inner, &mut Reader::new(content), element.label),
                    _ => Ok(()),
                }
            }
            (None, _) => self.single(builder, element, tag, reader),
        }
    }

    /// An element that is a single value.
    fn single(
        &self,
        builder: &mut RecordBuilder,
        element: &FieldPlan,
        tag: u32,
        reader: &mut Reader<'_>,
    ) -> Result<(), Wrong> {
        builder.begin_value().map_err(|error| What::from(error).at(element.label))?;
        self.value(builder, element, tag, reader).map_err(|what| what.at(element.label))?;
        builder.end_value();
        Ok(())
    }
}

/// The bytes of a message behind its tag.
fn content<'m>(step: &FieldPlan, tag: u32, reader: &mut Reader<'m>) -> Result<&'m [u8], What> {
    if tag != step.tag {
        return Err(What::Wire { found: tag, expected: step.tag });
    }
    match Wire::of(tag) {
        Some(Wire::Start) => Ok(reader.group(tag)?),
        _ => Ok(reader.length_delimited()?),
    }
}

/// The bytes of all the parts of a message that there are in another.
#[cold]
fn gather(message: &[u8], step: &FieldPlan) -> Result<Vec<u8>, What> {
    let mut whole = Vec::new();
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let tag = reader.tag()?;
        match wire::number(tag) == wire::number(step.tag) {
            true => whole.extend_from_slice(content(step, tag, &mut reader)?),
            false => reader.skip(tag)?,
        }
    }
    Ok(whole)
}
