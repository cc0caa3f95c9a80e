//! A query that takes the place of another one while its subscription runs.

use crossdock_format::{Field, Format};

use crate::error::{Position, QueryError};
use crate::parse::{Item, Select, Snapshot};
use crate::program::Projection;
use crate::snapshot::SnapshotProgram;

/// Ends every message about a change that is not possible.
const ANEW: &str = "or end the subscription and subscribe anew";

impl Select {
    /// Checks that this query may take the place of another one of the same subscription: of its stream, `stream`, and with the
    /// same clauses behind it.
    ///
    /// # Errors
    /// It is of another stream or has other clauses; with the place.
    pub fn check_change(&self, before: &Select, stream: &str) -> Result<(), QueryError> {
        if self.stream() != stream {
            let message = format!("the subscription is one to stream `{stream}`, and stays so");
            let hint = format!("name the same stream: FROM {stream}, {ANEW}");
            return Err(QueryError::new(message, self.stream_at()).hint(hint).over(self.sql()));
        }
        let refused = |message: String, hint: &str| {
            let at = self.clauses().snapshot.and_then(|read| read.at).or(self.clauses().at);
            Err(QueryError::new(message, at).hint(format!("{hint}, {ANEW}")).over(self.sql()))
        };
        let (now, was) = (self.snapshot(), before.snapshot());
        if was == Some(Snapshot::Once) {
            let message = "the query before is one with SNAPSHOT alone, which ends by itself".to_owned();
            return refused(message, "wait for its end");
        }
        if now != was {
            let message = format!("the query before is one {}, and this one is {}", words(was), words(now));
            return refused(message, "have the same words behind the stream");
        }
        if self.top_n().is_some() != before.top_n().is_some() {
            let message = "ORDER BY … LIMIT n is neither added nor taken away while a subscription runs".to_owned();
            return refused(message, "change the order, the number or the condition");
        }
        let text = |select: &Select| select.on_slow().map(|policy| policy.to_string());
        if text(self) != text(before) {
            let stays = text(before).map_or_else(|| "there is none".to_owned(), |text| format!("it is `{text}`"));
            return refused(
                format!("the clause ON SLOW stays while a subscription runs: {stays}"),
                "have it unchanged",
            );
        }
        let text = |select: &Select| select.max_rate().map(|rate| rate.to_string());
        if text(self) != text(before) {
            let stays = text(before).map_or_else(|| "there is none".to_owned(), |text| format!("it is `{text}`"));
            return refused(
                format!("the clause MAX RATE stays while a subscription runs: {stays}"),
                "have it unchanged",
            );
        }
        Ok(())
    }

    /// Checks that what this query gives of a state's rows, by `program`, can follow what the one before has given: that it has the
    /// same columns, and those of the key in the same places, so that a subscriber finds the row that leaves.
    ///
    /// # Errors
    /// It has other columns; with the place of the first.
    pub fn check_columns(&self, program: &SnapshotProgram, before: &SnapshotProgram) -> Result<(), QueryError> {
        // With DELTA the rows are compared, which say what may be null.
        let rows = |of: &SnapshotProgram| {
            of.deltas.as_ref().map_or_else(|| of.output().clone(), |deltas| deltas.rows.output.clone())
        };
        let (now, was) = (&rows(program), &rows(before));
        let hint = format!("have the columns ({}) with these types (CAST gives another), {ANEW}", columns_of(was));
        if now.id() != was.id() {
            let alike = |(now, was): &(&Field, &Field)| text_of(now) == text_of(was);
            let place = now.fields().iter().zip(was.fields()).take_while(alike).count();
            let message = format!(
                "a query with SNAPSHOT THEN CHANGES keeps its columns while a subscription runs, and this one gives ({})",
                columns_of(now)
            );
            return Err(QueryError::new(message, self.place_of(place)).hint(hint).over(self.sql()));
        }
        let (now, was) = (self.keys_of(program), self.keys_of(before));
        if let Some(place) = now.iter().zip(&was).position(|(now, was)| now != was) {
            let message = "a column of the stream's key would stand in another place of the list".to_owned();
            return Err(QueryError::new(message, self.place_of(place)).hint(hint).over(self.sql()));
        }
        Ok(())
    }

    /// Which column of the key each column of the list is, if it is one.
    fn keys_of(&self, program: &SnapshotProgram) -> Vec<Option<usize>> {
        let of = program.deltas.as_ref().map_or(&program.enter, |deltas| &deltas.rows);
        let Projection::Fields(outputs) = &of.projection else { return Vec::new() };
        let key = |name: &str| self.state_key().iter().position(|key| key.eq_ignore_ascii_case(name));
        let field = |index: usize| of.input.fields().get(index);
        outputs.iter().map(|output| key(&field(output.plain_field()?)?.name)).collect()
    }

    /// Where the entry of the select list stands that makes this column, if that is known.
    fn place_of(&self, column: usize) -> Option<Position> {
        let items = self.items();
        let last = items.len().saturating_sub(1);
        let are_columns = items.iter().take(column + 1).all(|item| matches!(item, Item::Expr { .. }));
        match items.get(column.min(last)) {
            Some(Item::Expr { at, .. } | Item::All { at, .. }) if are_columns || items.len() == 1 => *at,
            _ => self.clauses().snapshot.and_then(|read| read.at),
        }
    }
}

fn words(snapshot: Option<Snapshot>) -> &'static str {
    match snapshot {
        None => "without SNAPSHOT",
        Some(Snapshot::Once) => "with SNAPSHOT alone",
        Some(Snapshot::ThenChanges) => "with SNAPSHOT THEN CHANGES",
        Some(Snapshot::ThenDeltas) => "with SNAPSHOT THEN CHANGES DELTA",
    }
}

fn text_of(field: &Field) -> String {
    format!("{} {}{}", field.name, field.ty, if field.nullable { " null" } else { "" })
}

/// The columns of the list, without those that `THEN CHANGES` adds.
fn columns_of(format: &Format) -> String {
    let fields = format.fields().iter().filter(|field| !matches!(&*field.name, "_change" | "_changed"));
    fields.map(text_of).collect::<Vec<_>>().join(", ")
}
