//! The work of one stage, with its state.

use crossdock_format::Format;
use crossdock_query::{Operator as Plan, RowTime, Stage as StagePlan};

use super::asof::Asof;
use super::corrected_over::CorrectedOver;
use super::first_rows::FirstRows;
use super::join::Join;
use super::latest::{Latest, StateOrder};
use super::lookup::Lookup;
use super::moment::{Budget, Change, Emit, Lost, Made, Moment, TimedRows};
use super::over::Over;
use super::pair::emit_alone;
use super::table::TableRows;
use super::windows::Windows;
use crate::saved::SavedBytes;

/// A stage's work.
#[derive(Debug)]
pub(super) enum Operator {
    Union,
    Windows(Box<Windows>),
    Over(Box<Over>),
    CorrectedOver(Box<CorrectedOver>),
    Join(Box<Join>),
    Asof(Box<Asof>),
    Latest(Box<Latest>),
    Lookup(Box<Lookup>),
    First(Box<FirstRows>),
}

impl Operator {
    /// The work of a planned stage.
    ///
    /// # Errors
    /// In words: the plan does not fit its formats.
    pub(super) fn of(stage: &StagePlan) -> Result<Operator, String> {
        let input = |number: usize| stage.inputs.get(number).ok_or("a stage has too few inputs".to_owned());
        Ok(match &stage.operator {
            Plan::Union => {
                let same = |format: &Format| *format == stage.rows;
                if !stage.inputs.iter().all(|input| same(&input.row)) {
                    return Err("what is united has different formats".to_owned());
                }
                Operator::Union
            }
            Plan::Aggregate(aggregation) => {
                let input = input(0)?;
                Operator::Windows(Box::new(Windows::of(aggregation, &input.row, input.time.is_some(), &stage.rows)?))
            }
            Plan::Over(over) if over.identity.is_some() => {
                Operator::CorrectedOver(Box::new(CorrectedOver::of(over, &input(0)?.row, &stage.rows)?))
            }
            Plan::Over(over) => Operator::Over(Box::new(Over::of(over, &input(0)?.row, &stage.rows)?)),
            Plan::Join(join) => {
                let formats = [&input(0)?.row, &input(1)?.row];
                if join.is_bounded() && (input(0)?.time.is_none() || input(1)?.time.is_none()) {
                    return Err("a join by time needs the times of both inputs".to_owned());
                }
                Operator::Join(Box::new(Join::of(join, formats, &stage.rows)?))
            }
            Plan::Asof(asof) => {
                let formats = [&input(0)?.row, &input(1)?.row];
                if input(0)?.time.is_none() || input(1)?.time.is_none() {
                    return Err("a join by time needs the times of both inputs".to_owned());
                }
                Operator::Asof(Box::new(Asof::of(asof, formats)?))
            }
            Plan::Lookup(lookup) => Operator::Lookup(Box::new(Lookup::of(lookup, &input(0)?.row, &stage.rows)?)),
            Plan::First(first) => {
                if input(0)?.row != stage.rows || input(0)?.time != Some(first.window.0) {
                    return Err("the first rows of windows are rows of its input".to_owned());
                }
                Operator::First(Box::new(FirstRows::of(first, &stage.rows)?))
            }
            Plan::Latest(latest) => {
                if input(0)?.row != stage.rows {
                    return Err("the rows of a state are those of its input".to_owned());
                }
                Operator::Latest(Box::new(Latest::of(latest, &stage.rows)?))
            }
        })
    }

    /// Takes a change of an input's rows; `table` has the rows that the stage looks up. Where rows are not taken back, each is one of
    /// its own.
    #[inline]
    pub(super) fn take(
        &mut self,
        (input, change): (usize, Change<'_>),
        moment: Moment,
        table: Option<&TableRows>,
        emit: Emit<'_>,
    ) {
        match self {
            Operator::Union => return emit(Ok(Made::Change(change))),
            Operator::Windows(windows) if windows.corrects => return windows.correct(change, emit),
            Operator::CorrectedOver(over) => return over.take(change, emit),
            Operator::Join(join) if !join.is_bounded => return join.change(input, change, emit),
            _ => {}
        }
        let Some(row) = change.after else { return };
        match self {
            Operator::Union | Operator::CorrectedOver(_) => {}
            Operator::Windows(windows) => windows.take(row, moment, emit),
            Operator::Over(over) => over.take(row, emit),
            Operator::Join(join) => join.take(input, row, moment, emit),
            Operator::Asof(asof) => asof.take(input, (&[row], &[moment.time]), moment.marks, emit),
            Operator::Latest(latest) => latest.take(&[row], moment.time, emit),
            Operator::Lookup(lookup) => lookup.take(row, table, emit),
            Operator::First(first) => first.take(row, moment, emit),
        }
    }

    /// Takes rows of an input, at most a chunk, that come at the same marks; for operators that [take several](Operator::takes_several).
    #[inline]
    pub(super) fn take_rows(&mut self, input: usize, rows: TimedRows<'_>, moment: Moment, emit: Emit<'_>) {
        match self {
            Operator::Asof(asof) => asof.take(input, rows, moment.marks, emit),
            Operator::Latest(latest) => latest.take(rows.0, moment.time, emit),
            _ => debug_assert!(false, "it takes rows one by one"),
        }
    }

    /// Whether it takes several rows at once. Others may have work that is due between two of them.
    #[inline]
    pub(super) fn takes_several(&self) -> bool {
        matches!(self, Operator::Asof(_) | Operator::Latest(_))
    }

    /// Whether a row of this input leaves without a partner, where it finds none.
    pub(super) fn leaves_alone(&self, input: usize) -> bool {
        match self {
            Operator::Join(join) => join.leaves_alone(input),
            Operator::Asof(asof) => asof.leaves_alone(input),
            _ => false,
        }
    }

    /// Lets a row of an input leave alone: it has no time, and so no partner.
    pub(super) fn leave(&self, input: usize, row: &[u8], emit: Emit<'_>) {
        if let Operator::Join(_) | Operator::Asof(_) = self {
            emit_alone(usize::from(input != 0), row, emit);
        }
    }

    /// Does the work that is due at these watermarks, as far as the budget goes; returns whether there is more.
    #[inline]
    pub(super) fn advance(&mut self, moment: Moment, budget: &Budget, emit: Emit<'_>) -> bool {
        match self {
            Operator::Union | Operator::Over(_) | Operator::CorrectedOver(_) | Operator::Lookup(_) => false,
            Operator::Windows(windows) => windows.close(moment.watermark, budget, emit),
            Operator::Join(join) => join.expire(moment.marks, budget, emit),
            Operator::Asof(asof) => asof.release(moment.marks, budget, emit),
            Operator::Latest(latest) => latest.expire(moment.watermark, budget, emit),
            Operator::First(first) => first.release(moment.watermark, budget, emit),
        }
    }

    /// Whether nothing is due at this watermark of its only input, and what it has [given](Operator::given) stands; it takes note of the
    /// watermark then.
    #[inline]
    pub(super) fn rests(&mut self, watermark: i64) -> bool {
        match self {
            Operator::Windows(windows) => windows.rests(watermark),
            _ => false,
        }
    }

    /// The least that this time of the rows may be that it is yet to make.
    #[inline]
    pub(super) fn given(&self, time: RowTime, moment: Moment) -> i64 {
        match self {
            Operator::Windows(windows) => windows.given(time, moment.watermark),
            Operator::Join(join) => join.given(time, moment.marks),
            Operator::Asof(asof) => asof.given(time, moment.marks),
            Operator::First(first) => first.given(time, moment),
            _ => i64::MIN,
        }
    }

    /// Writes what it keeps.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        match self {
            Operator::Union | Operator::Lookup(_) => {}
            Operator::Windows(windows) => windows.save(out),
            Operator::Over(over) => over.save(out),
            Operator::CorrectedOver(over) => over.save(out),
            Operator::First(first) => first.save(out),
            Operator::Join(join) => join.save(out),
            Operator::Asof(asof) => asof.save(out),
            Operator::Latest(latest) => latest.save(out),
        }
    }

    /// Takes what was written, before its first row.
    ///
    /// # Errors
    /// It was not written by one like this, which is of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        match self {
            Operator::Union | Operator::Lookup(_) => Ok(()),
            Operator::Windows(windows) => windows.restore(from),
            Operator::Over(over) => over.restore(from),
            Operator::CorrectedOver(over) => over.restore(from),
            Operator::First(first) => first.restore(from),
            Operator::Join(join) => join.restore(from),
            Operator::Asof(asof) => asof.restore(from),
            Operator::Latest(latest) => latest.restore(from),
        }
    }

    /// Goes by the bounds of another plan for the same rows.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        if let (Operator::Latest(latest), Plan::Latest(plan)) = (self, plan) {
            latest.adopt(plan);
        }
    }

    /// Whether it has rows to walk over.
    pub(super) fn has_walk(&self) -> bool {
        matches!(self, Operator::Latest(latest) if latest.has_walk())
    }

    /// Whether no row leaves, whatever comes.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Operator::Latest(latest) if latest.is_silent())
    }

    /// Puts the rows in that were gathered.
    pub(super) fn settle(&mut self, emit: Emit<'_>) {
        match self {
            Operator::Windows(windows) => windows.settle(emit),
            Operator::Latest(latest) => latest.settle(emit),
            Operator::Join(join) => join.settle(emit),
            _ => {}
        }
    }

    /// Goes a step on with that.
    pub(super) fn walk(&mut self, emit: Emit<'_>) {
        if let Operator::Latest(latest) = self {
            latest.walk(emit);
        }
    }

    /// Carries out an order to the state of a stream.
    pub(super) fn order(&mut self, order: StateOrder) {
        if let Operator::Latest(latest) = self {
            latest.order(order);
        }
    }

    /// Whether it goes by the time of arrival.
    pub(super) fn wants_time(&self) -> bool {
        match self {
            Operator::Windows(windows) => windows.wants_time(),
            Operator::Latest(_) => true,
            _ => false,
        }
    }

    /// When the next of its windows ends.
    pub(super) fn next_end(&self) -> Option<i64> {
        match self {
            Operator::Windows(windows) => windows.next_end(),
            Operator::Latest(latest) => latest.next_end(),
            _ => None,
        }
    }

    /// How many rows, keys or groups it keeps.
    pub(super) fn kept(&self) -> usize {
        match self {
            Operator::Union | Operator::Lookup(_) => 0,
            Operator::Windows(windows) => windows.kept(),
            Operator::Over(over) => over.kept(),
            Operator::CorrectedOver(over) => over.kept(),
            Operator::Join(join) => join.kept(),
            Operator::Asof(asof) => asof.kept(),
            Operator::Latest(latest) => latest.kept(),
            Operator::First(first) => first.kept(),
        }
    }

    /// Whether it may keep more than when this was last asked: rows that are gathered change nothing until they are put in.
    #[inline]
    pub(super) fn may_have_grown(&mut self) -> bool {
        match self {
            Operator::Windows(windows) => windows.has_put_since(),
            Operator::Join(join) => join.has_put_since(),
            _ => true,
        }
    }

    /// How many bytes are in use.
    #[inline]
    pub(super) fn used(&self) -> usize {
        match self {
            // The rows of a table count as the table's.
            Operator::Union | Operator::Lookup(_) => 0,
            Operator::Windows(windows) => windows.used(),
            Operator::Over(over) => over.used(),
            Operator::CorrectedOver(over) => over.used(),
            Operator::Join(join) => join.used(),
            Operator::Asof(asof) => asof.used(),
            Operator::Latest(latest) => latest.used(),
            Operator::First(first) => first.used(),
        }
    }

    /// Forgets the oldest of what it keeps; returns whether there was something. A group that gives changes leaves.
    pub(super) fn forget(&mut self, emit: Emit<'_>) -> bool {
        match self {
            // It keeps within its own bounds, and its readers learn of each key that goes.
            Operator::Union | Operator::Latest(_) | Operator::Lookup(_) => false,
            Operator::Windows(windows) => windows.forget(emit),
            Operator::Over(over) => over.forget(),
            Operator::CorrectedOver(over) => over.forget(),
            Operator::Join(join) => join.forget(),
            Operator::Asof(asof) => asof.forget(),
            Operator::First(first) => first.forget(),
        }
    }

    /// The rows that were dropped since this was last asked.
    pub(super) fn take_lost(&mut self) -> Lost {
        match self {
            Operator::Union | Operator::Lookup(_) => Lost::default(),
            Operator::Windows(windows) => std::mem::take(&mut windows.lost),
            Operator::Over(over) => std::mem::take(&mut over.lost),
            Operator::CorrectedOver(over) => std::mem::take(&mut over.lost),
            Operator::Join(join) => std::mem::take(&mut join.lost),
            Operator::Asof(asof) => std::mem::take(&mut asof.lost),
            Operator::Latest(latest) => std::mem::take(&mut latest.lost),
            Operator::First(first) => std::mem::take(&mut first.lost),
        }
    }
}
