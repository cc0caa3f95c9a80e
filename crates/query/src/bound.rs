//! `MAX STATE`: the bound of the state of a query with joins, groups or rows before, in place of [`MAX_STATE_BYTES`].

use sqlparser::tokenizer::Token;

use crate::error::{Position, QueryError};
use crate::parse::{Clauses, ReadBound, Reader};
use crate::stateful::MAX_STATE_BYTES;

/// The most bytes of state that a query may be given: blocks of memory are numbered, and not all of it can be filled with rows.
const MOST_BYTES: u64 = 16 << 30;
/// The units of a bound, and their powers of 1024, as in PostgreSQL's settings.
const UNITS: [(&str, u32); 8] =
    [("BYTES", 0), ("BYTE", 0), ("KB", 1), ("KIB", 1), ("MB", 2), ("MIB", 2), ("GB", 3), ("GIB", 3)];
/// The form of the clause; ends every message about another.
const STATES: &str =
    "possible is: MAX STATE n BYTES | KB | MB | GB, behind a query with joins, groups, windows or OVER";

impl Clauses {
    /// The most bytes that the state of its query may take.
    pub(crate) fn max_state_bytes(&self) -> usize {
        let bytes = self.state.map(|state| state.bytes);
        bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(MAX_STATE_BYTES)
    }

    /// The refusal of `MAX STATE` behind a query of one stream, which keeps nothing itself.
    pub(crate) fn check_stateless(&self) -> Result<(), QueryError> {
        let Some(state) = self.state else { return Ok(()) };
        let (message, hint) = match self.snapshot {
            Some(_) => (
                "MAX STATE is the bound of a query's own state, and SNAPSHOT reads the state of a stream",
                "`crossdock streams set STREAM --key COLUMN --max-bytes N` sets the bound of that",
            ),
            None => ("MAX STATE is the bound of a query's state, and this one keeps none: leave it out", STATES),
        };
        Err(QueryError::new(message, state.at).hint(hint))
    }
}

impl Reader {
    /// `n unit`, behind the words of the clause, which begins at `at`; `before` is one that was read already.
    pub(crate) fn max_state(
        &mut self,
        before: Option<ReadBound>,
        at: Option<Position>,
    ) -> Result<Option<ReadBound>, QueryError> {
        if before.is_some() {
            return Err(QueryError::new("MAX STATE comes once", at).hint(STATES));
        }
        let number_at = self.here();
        let Token::Number(text, _) = &self.parser.peek_token_ref().token else {
            return Err(self.not_next("the number of bytes", STATES));
        };
        let text = text.clone();
        self.parser.advance_token();
        let unit = UNITS.iter().find(|(unit, _)| self.takes_words(&[unit]));
        let Some((unit, power)) = unit else { return Err(self.not_next("the unit of the bound", STATES)) };
        let bytes = text.parse().ok().and_then(|number: u64| number.checked_mul(1024_u64.checked_pow(*power)?));
        match bytes.filter(|bytes| (1..=MOST_BYTES).contains(bytes)) {
            Some(bytes) => Ok(Some(ReadBound { bytes, at })),
            None => {
                let message = format!("the bound of a query's state is 1 byte to 16 GB, and this one is {text} {unit}");
                Err(QueryError::new(message, number_at).hint(STATES))
            }
        }
    }
}
