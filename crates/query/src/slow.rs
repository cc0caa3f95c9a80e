//! Clauses of a subscription, behind its query: `ON SLOW` says what a subscriber gets that is slow, `MAX RATE` how many
//! records a second it gets at most.
//!
//! PostgreSQL has no words for either; they are read on the tokens of its parser like all other clauses. The part of a clause that reads
//! records is a query of its own over the same stream, so names, types and errors are those of any query.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use sqlparser::ast;
use sqlparser::tokenizer::{Token, Word};

use crate::error::{Position, QueryError};
use crate::parse::{
    Clauses, Condition, Item, Parsed, ReadPart, ReadPolicy, ReadRate, ReadSnapshot, Reader, Select, is_reserved,
};
use crate::snapshot;
use crate::top_n;

/// The policies of `ON SLOW`; ends every message about one that is not.
const POLICIES: &str = "possible is: ON SLOW BLOCK | DROP OLDEST | CONFLATE BY (column, ...) | SAMPLE n | KEEP WHERE \
     condition | DISCONNECT";
/// The form of `MAX RATE`; ends every message about another.
const RATES: &str = "possible is: MAX RATE n PER SECOND [BY column, ...]";
/// The highest rate of `MAX RATE`: a record a nanosecond.
const MAX_PER_SECOND: u32 = 1_000_000_000;

/// The records that a subscriber gets while it is slow: its queue is full, and it takes nothing now.
#[derive(Clone, Debug)]
pub enum SlowPolicy {
    /// The publishers of its stream wait: nothing is lost.
    Block,
    /// The oldest records in its queue are dropped.
    DropOldest,
    /// Of each key, the last record that the query selects; of the state of a stream the newest change of each row. Its columns.
    Conflate(ClausePart),
    /// One in this number of the records that the query selects.
    Sample(NonZeroU32),
    /// The records that the query selects and for which this condition holds.
    Keep(ClausePart),
    /// Its session is ended; of the state of a stream once there is no room for more changes that wait for it.
    Disconnect,
}

impl SlowPolicy {
    /// Whether it selects among the records that come while its subscriber is slow, so that some leave later and no publisher
    /// waits.
    #[must_use]
    pub fn selects(&self) -> bool {
        matches!(self, SlowPolicy::Conflate(_) | SlowPolicy::Sample(_) | SlowPolicy::Keep(_))
    }

    /// The part that reads records, as a query of its own.
    #[must_use]
    pub fn reads(&self) -> Option<&Select> {
        match self {
            SlowPolicy::Conflate(part) | SlowPolicy::Keep(part) => Some(&part.select),
            SlowPolicy::Block | SlowPolicy::DropOldest | SlowPolicy::Sample(_) | SlowPolicy::Disconnect => None,
        }
    }
}

/// In lists: `block`, `drop_oldest`, `disconnect`, `conflate by (flight)`, `sample 8`, `keep where severity >= 3`.
impl fmt::Display for SlowPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlowPolicy::Block => f.write_str("block"),
            SlowPolicy::DropOldest => f.write_str("drop_oldest"),
            SlowPolicy::Disconnect => f.write_str("disconnect"),
            SlowPolicy::Conflate(part) => write!(f, "conflate by ({})", part.text),
            SlowPolicy::Sample(one_in) => write!(f, "sample {one_in}"),
            SlowPolicy::Keep(part) => write!(f, "keep where {}", part.text),
        }
    }
}

/// The most records a second that a subscriber gets.
#[derive(Clone, Debug)]
pub struct MaxRate {
    /// Records a second, and as many at once after a pause.
    pub per_second: NonZeroU32,
    /// The columns of a key: each key has a rate of its own. All records have one together without.
    pub by: Option<ClausePart>,
}

/// In lists: `100 per second by flight`.
impl fmt::Display for MaxRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per second", self.per_second)?;
        self.by.iter().try_for_each(|by| write!(f, " by {}", by.text))
    }
}

/// A part of a clause that reads records.
#[derive(Clone, Debug)]
pub struct ClausePart {
    /// As a query of its own: `SELECT columns FROM stream`, or `SELECT * FROM stream WHERE condition`. A value or a condition
    /// that has a row error is null.
    pub select: Select,
    /// As it was written, spaces aside.
    pub text: String,
}

impl Select {
    /// The policy of its clause `ON SLOW`, if it has that clause.
    #[must_use]
    pub fn on_slow(&self) -> Option<SlowPolicy> {
        let part = |part: &ReadPart| self.part(part);
        Some(match self.clauses().slow.as_ref()? {
            ReadPolicy::Block => SlowPolicy::Block,
            ReadPolicy::DropOldest => SlowPolicy::DropOldest,
            ReadPolicy::Disconnect => SlowPolicy::Disconnect,
            ReadPolicy::Conflate(keys) => SlowPolicy::Conflate(part(keys)),
            ReadPolicy::Sample(one_in) => SlowPolicy::Sample(*one_in),
            ReadPolicy::Keep(condition) => SlowPolicy::Keep(part(condition)),
        })
    }

    /// The rate of its clause `MAX RATE`, if it has that clause.
    #[must_use]
    pub fn max_rate(&self) -> Option<MaxRate> {
        let rate = self.clauses().rate.as_ref()?;
        Some(MaxRate { per_second: rate.per_second, by: rate.by.as_ref().map(|by| self.part(by)) })
    }

    /// The place of the columns of its clause `ON SLOW CONFLATE BY`.
    pub(crate) fn conflate_at(&self) -> Option<Position> {
        if let Some(ReadPolicy::Conflate(keys)) = &self.clauses().slow { keys.at() } else { None }
    }

    /// The records that it selects, as they come: `SELECT * FROM stream WHERE …`, with its condition.
    #[must_use]
    pub fn selected(&self) -> Select {
        self.with_parsed(Arc::new(Parsed::of(vec![Item::All { qualifier: None, at: None }], self.shared_condition())))
    }

    fn part(&self, part: &ReadPart) -> ClausePart {
        let select = self.with_parsed(Arc::clone(&part.parsed)).with_null_for_errors();
        ClausePart { select, text: part.text.clone() }
    }
}

/// Changes are of use only as a whole, or the last of each key: no other clause may leave one out.
pub(crate) fn check_changes(clauses: &Clauses) -> Result<(), QueryError> {
    let (loses, conflates) = match &clauses.slow {
        Some(ReadPolicy::DropOldest | ReadPolicy::Sample(_) | ReadPolicy::Keep(_)) => (true, false),
        Some(ReadPolicy::Conflate(_)) => (false, true),
        Some(ReadPolicy::Block | ReadPolicy::Disconnect) | None => (false, false),
    };
    if !loses && (clauses.rate.is_none() || conflates) {
        return Ok(());
    }
    let message = "CHANGES gives every change: another that is left out would make the subscriber's table wrong";
    Err(QueryError::new(message, clauses.at)
        .hint("possible beside CHANGES are: ON SLOW BLOCK, DISCONNECT, or CONFLATE BY the columns of the groups"))
}

impl Reader {
    /// The clauses behind WHERE: each at most once, in any order; `SNAPSHOT` may have been read before WHERE.
    pub(crate) fn clauses(&mut self, snapshot: Option<ReadSnapshot>) -> Result<Clauses, QueryError> {
        let at = snapshot.and_then(|snapshot| snapshot.at);
        let (mut clauses, mut rate_at) = (Clauses { snapshot, at, ..Clauses::default() }, None);
        loop {
            let at = self.here();
            if self.takes_words(&["MAX", "STATE"]) {
                clauses.state = self.max_state(clauses.state, at)?;
                continue;
            }
            if self.takes_words(&["ON", "SLOW"]) {
                if clauses.slow.is_some() {
                    return Err(QueryError::new("ON SLOW comes once", at).hint(POLICIES));
                }
                clauses.slow = Some(self.slow_policy()?);
            } else if self.takes_words(&["MAX", "RATE"]) {
                if clauses.rate.is_some() {
                    return Err(QueryError::new("MAX RATE comes once", at).hint(RATES));
                }
                (clauses.rate, rate_at) = (Some(self.max_rate()?), at);
            } else if self.is_at_snapshot() {
                clauses.snapshot = self.snapshot(clauses.snapshot)?;
            } else if clauses.snapshot.is_some() && self.is_word_at(0, "ORDER") {
                self.read_order(&mut clauses)?;
            } else if clauses.snapshot.is_some() && self.is_word_at(0, "LIMIT") {
                self.read_limit(&mut clauses)?;
            } else if self.takes_words(&["ON"]) {
                return Err(self.not_next("SLOW", POLICIES));
            } else {
                check_keys(&clauses)?;
                snapshot::check_rate(&clauses, rate_at)?;
                return top_n::check(&clauses).map(|()| clauses);
            }
            snapshot::check(&clauses, at)?;
            clauses.at = clauses.at.or(at);
        }
    }

    /// Whether `MAX RATE` or `MAX STATE` begins here, rather than a name.
    pub(crate) fn is_at_max(&self) -> bool {
        self.is_word_at(0, "MAX") && (self.is_word_at(1, "RATE") || self.is_word_at(1, "STATE"))
    }

    fn slow_policy(&mut self) -> Result<ReadPolicy, QueryError> {
        let policies: [(&[&str], ReadPolicy); 3] = [
            (&["BLOCK"], ReadPolicy::Block),
            (&["DROP", "OLDEST"], ReadPolicy::DropOldest),
            (&["DISCONNECT"], ReadPolicy::Disconnect),
        ];
        for (words, policy) in policies {
            if self.takes_words(words) {
                return Ok(policy);
            }
        }
        if self.takes_words(&["CONFLATE", "BY"]) {
            self.expect_token(&Token::LParen, "`(` and the columns of the key", POLICIES)?;
            let keys = self.columns(POLICIES)?;
            self.expect_token(&Token::RParen, "`,` and another column, or `)`", POLICIES)?;
            return Ok(ReadPolicy::Conflate(keys));
        }
        if self.takes_words(&["SAMPLE"]) {
            return Ok(ReadPolicy::Sample(self.number(u32::MAX, "one record in how many is kept", POLICIES)?));
        }
        if self.takes_words(&["KEEP", "WHERE"]) {
            let (at, expr) = (self.here(), self.expr()?);
            let text = expr.to_string();
            let condition = Some(Arc::new(Condition { expr, at }));
            let all = vec![Item::All { qualifier: None, at: None }];
            return Ok(ReadPolicy::Keep(ReadPart { parsed: Arc::new(Parsed::of(all, condition)), text }));
        }
        Err(self.not_next("what a slow subscriber gets", POLICIES))
    }

    fn max_rate(&mut self) -> Result<ReadRate, QueryError> {
        let per_second = self.number(MAX_PER_SECOND, "the number of records a second", RATES)?;
        if !self.takes_words(&["PER", "SECOND"]) {
            return Err(self.not_next("PER SECOND", RATES));
        }
        let by = if self.takes_words(&["BY"]) { Some(self.columns(RATES)?) } else { None };
        Ok(ReadRate { per_second, by })
    }

    /// The columns of a key, which may be qualified as in the query.
    fn columns(&mut self, possible: &str) -> Result<ReadPart, QueryError> {
        let (mut items, mut texts) = (Vec::new(), Vec::new());
        loop {
            let at = self.here();
            let is_name = match &self.parser.peek_token_ref().token {
                Token::Word(word) => word.quote_style.is_some() || !is_reserved(word),
                _ => false,
            };
            if !is_name {
                return Err(self.not_next("the name of a column", possible));
            }
            let expr = self.expr()?;
            if !matches!(expr, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)) {
                return Err(QueryError::new("a key is made of columns, not of expressions", at).hint(possible));
            }
            texts.push(expr.to_string());
            items.push(Item::Expr { expr: Box::new(expr), alias: None, at });
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(ReadPart { parsed: Arc::new(Parsed::of(items, None)), text: texts.join(", ") });
            }
        }
    }

    pub(crate) fn number(&mut self, most: u32, what: &str, possible: &str) -> Result<NonZeroU32, QueryError> {
        let at = self.here();
        let Token::Number(text, _) = &self.parser.peek_token_ref().token else {
            return Err(self.not_next(what, possible));
        };
        let number = text.parse().ok().filter(|number: &NonZeroU32| number.get() <= most);
        let Some(number) = number else {
            return Err(QueryError::new(format!("expected {what}, 1 to {most}, found {text}"), at).hint(possible));
        };
        self.parser.next_token();
        Ok(number)
    }

    fn expect_token(&mut self, token: &Token, what: &str, possible: &str) -> Result<(), QueryError> {
        if self.parser.consume_token(token) { Ok(()) } else { Err(self.not_next(what, possible)) }
    }

    /// Goes on behind these words, if they are next.
    pub(crate) fn takes_words(&mut self, words: &[&str]) -> bool {
        let are_next = words.iter().enumerate().all(|(at, word)| self.is_word_at(at, word));
        if are_next {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        are_next
    }

    pub(crate) fn is_word_at(&self, at: usize, wanted: &str) -> bool {
        matches!(&self.parser.peek_nth_token_ref(at).token,
            Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(wanted))
    }

    /// The error for the next token, where this was expected.
    pub(crate) fn not_next(&self, expected: &str, possible: &str) -> QueryError {
        let message = match &self.parser.peek_token_ref().token {
            Token::EOF => format!("expected {expected}, but the query ends"),
            token => format!("expected {expected}, found {token}"),
        };
        QueryError::new(message, self.here()).hint(possible)
    }
}

impl ReadPart {
    /// The place of its first column.
    fn at(&self) -> Option<Position> {
        self.parsed.items.iter().find_map(|item| if let Item::Expr { at, .. } = item { *at } else { None })
    }
}

/// A rate by key, beside conflation, has the same key as that.
fn check_keys(clauses: &Clauses) -> Result<(), QueryError> {
    let Some(ReadPolicy::Conflate(keys)) = &clauses.slow else { return Ok(()) };
    let Some(by) = clauses.rate.as_ref().and_then(|rate| rate.by.as_ref()) else { return Ok(()) };
    if by.text == keys.text {
        return Ok(());
    }
    let at = by.at();
    let message = format!("MAX RATE has the key ({}), and CONFLATE the key ({})", by.text, keys.text);
    Err(QueryError::new(message, at).hint(format!("possible beside it is: MAX RATE n PER SECOND [BY {}]", keys.text)))
}
