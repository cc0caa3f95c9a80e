//! Tokens to records.

use super::members::{Entry, Goal, Item, Members, Needs, Written};
use super::put::{Misfit, Rules};
use super::{Flaw, Open, Token, Tokens};
use crate::builder::{Place, RecordBuilder, ValueError};
use crate::field::FieldType;
use crate::format::Format;
use crate::nesting::MAX_NESTING;
use crate::scan::Target;
use crate::text;

/// Reads items, each a map whose names are the format's, into records, without allocating once its buffers have grown.
#[derive(Debug)]
pub(crate) struct TokenDecoder {
    members: Members,
    state: State,
}

#[derive(Debug)]
struct State {
    builder: RecordBuilder,
    rules: Rules,
    /// One bit a member, of all maps: those that were there.
    seen: Vec<u64>,
    /// For each member, which one came behind it the last time.
    next: Vec<usize>,
    /// Maps and arrays that are open, those that are passed over besides.
    depth: usize,
    passed_over: Vec<Open>,
    /// The decoded texts.
    scratch: Vec<u8>,
}

/// Why an item is no record.
pub(crate) enum Stop {
    /// It is none of the encoding.
    Flaw(Flaw),
    /// It is none of the format; it can be passed over.
    Wrong(Box<Wrong>),
    /// The builder refused it; it can be passed over.
    Refused(Box<ValueError>),
}

/// The problem of an item.
pub(crate) struct Wrong {
    /// The path of the field, where one is at fault.
    pub(crate) field: Option<String>,
    pub(crate) problem: WrongItem,
}

pub(crate) enum WrongItem {
    Value { found: String, expected: String },
    Unknown { known: String },
    Twice,
}

impl From<Flaw> for Stop {
    fn from(flaw: Flaw) -> Self {
        Self::Flaw(flaw)
    }
}

impl From<ValueError> for Stop {
    fn from(error: ValueError) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl TokenDecoder {
    /// A decoder to records of this format; `written` is how the encoding writes a name.
    pub(crate) fn new(format: &Format, rules: Rules, written: Written) -> Self {
        let mut needs = Needs::default();
        let members = Members::of(format, written, &mut needs);
        let state = State {
            builder: RecordBuilder::with_defaults(format),
            rules,
            seen: vec![0; needs.seen],
            next: needs.next,
            depth: 0,
            passed_over: Vec::new(),
            scratch: Vec::new(),
        };
        Self { members, state }
    }

    /// Makes a record of the item that comes next, for [`TokenDecoder::finish`].
    #[inline]
    pub(crate) fn item<T: Tokens>(&mut self, tokens: &mut T) -> Result<(), Stop> {
        let Self { members, state } = self;
        state.builder.clear();
        state.depth = 0;
        match tokens.map()? {
            Token::Map(open) => state.map(members, open, tokens),
            other => Err(wrong(None, describe::<T>(&other), format!("{}, one member a field", T::MAP))),
        }
    }

    /// Makes a record of the value of its first field, for [`TokenDecoder::finish`].
    pub(crate) fn first_value<T: Tokens>(&mut self, tokens: &mut T) -> Result<(), Stop> {
        let Self { members, state } = self;
        state.builder.clear();
        state.depth = 0;
        members.entries.first().map_or(Ok(()), |entry| state.member(entry, tokens))
    }

    /// The record.
    #[inline]
    pub(crate) fn finish(&mut self) -> Result<&[u8], ValueError> {
        self.state.builder.finish()
    }
}

impl State {
    fn map<T: Tokens>(&mut self, members: &Members, mut open: Open, tokens: &mut T) -> Result<(), Stop> {
        self.depth += 1;
        if let Some(seen) = self.seen.get_mut(members.seen.clone()) {
            seen.fill(0);
        }
        let mut before = members.next;
        while tokens.more(&mut open)? {
            match self.name(members, before, tokens)? {
                Some(index) => {
                    before = members.next + index + 1;
                    if let Some(entry) = members.entries.get(index) {
                        self.member(entry, tokens)?;
                    }
                }
                // Text of an encoding whose texts are UTF-8 throughout.
                None => self.pass_over(tokens, T::LACKS_TYPES && !self.rules.repairs_text)?,
            }
        }
        if !T::IS_TYPED {
            self.fill_lists(members)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Lists that may not be null and were not there have no elements.
    fn fill_lists(&mut self, members: &Members) -> Result<(), ValueError> {
        for (index, field) in &members.lists {
            let word = self.seen.get(members.seen.start + index / 64);
            if word.is_some_and(|word| word & 1 << (index % 64) == 0) {
                self.builder.begin_list(*field)?;
                self.builder.end_list()?;
            }
        }
        Ok(())
    }

    /// Takes the name of a member that was not there before, and notes that it is now; `None` for one that the format does
    /// not have. `before` is the place of the guess.
    #[inline(always)]
    fn name<T: Tokens>(&mut self, members: &Members, before: usize, tokens: &mut T) -> Result<Option<usize>, Stop> {
        let likely = self.next.get(before).copied().unwrap_or_default();
        let index = match members.entries.get(likely) {
            Some(entry) if tokens.take_name(&entry.needle)? => likely,
            _ => match self.look_up(members, before, tokens)? {
                Some(index) => index,
                None => return Ok(None),
            },
        };
        let bit = 1 << (index % 64);
        match self.seen.get_mut(members.seen.start + index / 64) {
            Some(word) if *word & bit == 0 => *word |= bit,
            _ => return Err(self.twice(members, index)),
        }
        Ok(Some(index))
    }

    /// Finds a member that is not the likely one, and expects it here from now on.
    #[inline(never)]
    fn look_up<T: Tokens>(&mut self, members: &Members, before: usize, tokens: &mut T) -> Result<Option<usize>, Stop> {
        let name = match tokens.name()? {
            Ok(name) => name,
            Err(other) => {
                let path = self.path(members.within.trim_end_matches('.'));
                let field = Some(path).filter(|path| !path.is_empty());
                return Err(wrong(field, describe::<T>(&other), T::NAME.to_owned()));
            }
        };
        let found = members.find(name).or_else(|| members.find(T::short_name(name)?));
        match (found, self.next.get_mut(before)) {
            (Some(index), Some(next)) => *next = index,
            _ if self.rules.ignore_unknown => {}
            _ => {
                let field = self.path(&format!("{}{}", members.within, text::shorten(name)));
                let problem = WrongItem::Unknown { known: members.known() };
                return Err(Stop::Wrong(Box::new(Wrong { field: Some(field), problem })));
            }
        }
        Ok(found)
    }

    #[cold]
    fn twice(&self, members: &Members, index: usize) -> Stop {
        let field = members.entries.get(index).map(|entry| self.path(&entry.path));
        Stop::Wrong(Box::new(Wrong { field, problem: WrongItem::Twice }))
    }

    /// The value of a member.
    #[inline(always)]
    fn member<T: Tokens>(&mut self, entry: &Entry, tokens: &mut T) -> Result<(), Stop> {
        match &entry.goal {
            Goal::Value(target) => self.value(target, tokens),
            Goal::List(index, item) => self.list(*index, false, item, tokens),
            Goal::Group(group, members) => match tokens.map()? {
                Token::Null => Ok(self.builder.set_group_null(group)?),
                Token::Map(open) => {
                    self.builder.set_group_present(group);
                    self.map(members, open, tokens)
                }
                other => {
                    let or_null = if group.nullable { ", or null" } else { "" };
                    let expected = format!("{}{or_null}", T::MAP);
                    Err(wrong(Some(self.path(&entry.path)), describe::<T>(&other), expected))
                }
            },
        }
    }

    #[inline(never)]
    fn value<T: Tokens>(&mut self, target: &Target, tokens: &mut T) -> Result<(), Stop> {
        let start = tokens.mark();
        let token = tokens.value()?;
        let Self { builder, rules, scratch, .. } = self;
        match rules.put::<T>(builder, scratch, target, token) {
            Ok(()) => Ok(()),
            Err(misfit) => {
                // Read again, so that the compiler need not keep it whole.
                tokens.go_to(start);
                Err(self.unfit(target, tokens, misfit))
            }
        }
    }

    #[cold]
    fn unfit<T: Tokens>(&self, target: &Target, tokens: &mut T, misfit: Misfit) -> Stop {
        let index = target.place.index();
        if let Misfit::Refused(problem) = misfit {
            return self.builder.refuse(index, problem).into();
        }
        let found = match tokens.value() {
            Ok(Token::Text(run)) if misfit == Misfit::NotText => {
                format!("text that is no UTF-8, \"{}\"", text::shorten(run.bytes))
            }
            Ok(token) => describe::<T>(&token),
            Err(flaw) => return flaw.into(),
        };
        let Some(field) = self.builder.format().fields().get(index) else {
            return wrong(None, found, "no value".to_owned());
        };
        // Without the quotes of a text that may be a number.
        let mut expected = match field.ty {
            FieldType::Bytes if !T::LACKS_TYPES => "bytes".to_owned(),
            _ => text::expected_not(found.trim_matches('`').as_bytes(), field, T::TIMES),
        };
        expected.push_str(if target.place.may_be_null() { ", or null" } else { "" });
        wrong(Some(self.path(&field.name)), found, expected)
    }

    /// The list of a field; `is_element`: the field is an element of a list of lists.
    fn list<T: Tokens>(&mut self, index: usize, is_element: bool, item: &Item, tokens: &mut T) -> Result<(), Stop> {
        match tokens.array(is_element)? {
            Token::Null => Ok(self.builder.set_null(index)?),
            Token::Array(mut open) => {
                self.builder.begin_list(index)?;
                self.depth += 1;
                while tokens.more(&mut open)? {
                    self.element(item, tokens)?;
                }
                self.depth -= 1;
                Ok(self.builder.end_list()?)
            }
            other => {
                let field = self.builder.format().fields().get(index);
                let place = Place::of(self.builder.format(), index);
                let or_null = if place.is_some_and(Place::may_be_null) { ", or null" } else { "" };
                let path = field.map(|field| self.path(&field.name));
                Err(wrong(path, describe::<T>(&other), format!("{}{or_null}", T::ARRAY)))
            }
        }
    }

    #[inline]
    fn element<T: Tokens>(&mut self, item: &Item, tokens: &mut T) -> Result<(), Stop> {
        match item {
            Item::Value(target) => {
                self.builder.begin_value()?;
                self.value(target, tokens)?;
                self.builder.end_value();
                Ok(())
            }
            Item::List(inner) => {
                self.builder.begin_value()?;
                self.list(0, true, inner, tokens)
            }
            Item::Record(members) => {
                self.builder.begin_element()?;
                self.record(members, tokens)?;
                Ok(self.builder.end_element()?)
            }
            Item::Nullable(members) => {
                self.builder.begin_element()?;
                self.nullable(members, tokens)?;
                Ok(self.builder.end_element()?)
            }
        }
    }

    /// A record in a list.
    fn record<T: Tokens>(&mut self, members: &Members, tokens: &mut T) -> Result<(), Stop> {
        match tokens.map()? {
            Token::Map(open) => self.map(members, open, tokens),
            other => Err(wrong(Some(self.path("")), describe::<T>(&other), T::MAP.to_owned())),
        }
    }

    /// The value of a record that has no other: as the map's only member, without a map around it, or null.
    fn nullable<T: Tokens>(&mut self, members: &Members, tokens: &mut T) -> Result<(), Stop> {
        let Some(entry) = members.entries.first() else { return self.record(members, tokens) };
        let start = tokens.mark();
        let is_record = match (tokens.map()?, &entry.goal) {
            (Token::Null, _) => return Ok(()),
            // A map of maps is the record if it looks like one, and else its value.
            (Token::Map(open), Goal::Group(_, inner)) if T::IS_TYPED => {
                self.is_wrapped(&entry.name, inner, open, tokens)?
            }
            (Token::Map(_), _) => true,
            (other, _) if !T::IS_TYPED => {
                return Err(wrong(Some(self.path("")), describe::<T>(&other), T::MAP.to_owned()));
            }
            _ => false,
        };
        tokens.go_to(start);
        if is_record { self.record(members, tokens) } else { self.member(entry, tokens) }
    }

    /// Whether a map is the record around the value, and not the value: it has a member of this name that is a map or null. If
    /// the value has such a member itself, the map has no other of the value's members besides.
    fn is_wrapped<T: Tokens>(
        &mut self,
        name: &str,
        value: &Members,
        mut open: Open,
        tokens: &mut T,
    ) -> Result<bool, Stop> {
        let is_other_too = value.find(name.as_bytes()).is_some();
        let mut is_found = false;
        while tokens.more(&mut open)? {
            let Ok(found) = tokens.name()? else { return Ok(false) };
            let is_it = found == name.as_bytes();
            if !is_it && is_other_too && value.find(found).is_some() {
                return Ok(false);
            }
            let start = tokens.mark();
            is_found |= is_it && matches!(tokens.value()?, Token::Map(_) | Token::Null);
            if is_found && !is_other_too {
                return Ok(true);
            }
            tokens.go_to(start);
            self.pass_over(tokens, false)?;
        }
        Ok(is_found)
    }

    /// Passes over a value. The bound on its depth holds with what it lies in. `is_checked`: its texts are UTF-8.
    fn pass_over<T: Tokens>(&mut self, tokens: &mut T, is_checked: bool) -> Result<(), Flaw> {
        let Self { passed_over, depth, .. } = self;
        passed_over.clear();
        loop {
            let start = tokens.mark();
            match tokens.any()? {
                Token::Array(Open { left: Some(0), .. }) | Token::Map(Open { left: Some(0), .. }) => {}
                // A decimal is an array of two.
                Token::Array(_) | Token::Map(_) | Token::Decimal { .. }
                    if *depth + passed_over.len() >= MAX_NESTING =>
                {
                    return Err(Flaw::TooDeep);
                }
                Token::Array(open) => passed_over.push(open),
                Token::Map(open) => passed_over.push(if T::NAMES_ARE_VALUES { open.of_values()? } else { open }),
                Token::Text(run) if is_checked && !run.is_text() => {
                    tokens.go_to(start);
                    return Err(Flaw::Expected("a text in UTF-8"));
                }
                _ => {}
            }
            loop {
                let Some(open) = passed_over.last_mut() else { return Ok(()) };
                if tokens.more(open)? {
                    match open.is_map {
                        true if T::NAMES_ARE_VALUES => open.lacks_value = !open.lacks_value,
                        true => {
                            let _ = tokens.name()?;
                        }
                        false => {}
                    }
                    break;
                }
                if open.lacks_value {
                    return Err(Flaw::Found("a map whose last name has no value"));
                }
                passed_over.pop();
            }
        }
    }

    /// A path from the record on, of names within the innermost open element.
    fn path(&self, names: &str) -> String {
        match self.builder.path() {
            Some(path) if names.is_empty() || self.builder.is_in_value() => path.into(),
            Some(path) => format!("{path}.{names}"),
            None => names.to_owned(),
        }
    }
}

#[cold]
fn wrong(field: Option<String>, found: String, expected: String) -> Stop {
    Stop::Wrong(Box::new(Wrong { field, problem: WrongItem::Value { found, expected } }))
}

/// The found value, in words.
#[cold]
fn describe<T: Tokens>(token: &Token<'_>) -> String {
    match token {
        Token::Null => "null".to_owned(),
        Token::Bool(value) => value.to_string(),
        Token::Int(value) => value.to_string(),
        Token::Float(value) => format!("{value:?}"),
        Token::Seconds(_) | Token::Time(_) => "a time".to_owned(),
        Token::Decimal { unscaled, scale } => {
            let mut text = Vec::new();
            text::push_decimal(&mut text, *unscaled, *scale);
            String::from_utf8_lossy(&text).into_owned()
        }
        Token::Digits(digits) => text::shorten(digits.text.bytes),
        Token::Text(run) => format!("\"{}\"", text::shorten(run.bytes)),
        Token::Bytes(run) => format!("{} bytes", run.bytes.len()),
        Token::Untyped(run) => format!("`{}`", text::shorten(run.bytes)),
        Token::Array(_) => T::ARRAY.to_owned(),
        Token::Map(_) => T::MAP.to_owned(),
        Token::BigInt { value, .. } => value.to_string(),
        Token::Stray { what, text } => format!("{what} `{}`", text::shorten(text)),
        Token::Other(what) => (*what).to_owned(),
    }
}
