//! A query with `SNAPSHOT`, planned for the rows of the state of its stream.

use super::{Entry, Planned, Subscription, instance_of};
use crate::graph::slow::Reducer;
use crossdock_control::load::Cost;
use crossdock_engine::{ChangeMerger, SnapshotHandler};
use crossdock_format::Format;
use crossdock_query::{Program, QueryError, Select, SnapshotProgram};

impl Planned {
    /// Plans a query with `SNAPSHOT` for the format of the rows of its stream's state.
    pub(super) fn of_state(
        select: &Select,
        format: &Format,
        measure: impl FnOnce(&Program) -> Option<Cost>,
    ) -> Planned {
        let handler = |program| Ok(SnapshotHandler::new(program));
        Planned::of_program((select.plan_snapshot(format), format), handler, measure)
    }

    /// The same for a query that takes the place of another one: its handler gives the difference. `change` is the number of the change,
    /// greater than those of the subscription's changes before.
    pub(crate) fn of_change(
        (select, before): (&Select, &Select),
        format: &Format,
        change: u64,
        measure: impl FnOnce(&Program) -> Option<Cost>,
    ) -> Planned {
        let handler = |program: SnapshotProgram| {
            let former = before.plan_snapshot(format)?;
            select.check_columns(&program, &former)?;
            Ok(SnapshotHandler::changing(program, former, change))
        };
        Planned::of_program((select.plan_snapshot(format), format), handler, measure)
    }

    fn of_program(
        (program, format): (Result<SnapshotProgram, QueryError>, &Format),
        handler: impl FnOnce(SnapshotProgram) -> Result<SnapshotHandler, QueryError>,
        measure: impl FnOnce(&Program) -> Option<Cost>,
    ) -> Planned {
        let (mut entry, mut instance, mut cost) = (Entry::new(format), instance_of(format, None), None);
        let mut reducer = None;
        let outcome = program.and_then(|program| {
            let output = program.output().clone();
            cost = measure(program.source());
            entry.note(program.source(), &[]);
            reducer = ChangeMerger::of(&program).map(|merger| Reducer::of_changes(merger, format));
            instance.handler = Some(Box::new(handler(program)?));
            // Changes of rows for which the condition does not hold are left out, whether it has one or not.
            entry.filters = true;
            entry.output_format = Some(output.clone());
            instance.output = output.id().0;
            Ok(output)
        });
        Planned { entry, instance, reducer, outcome, cost }
    }
}

impl Subscription {
    /// Whether its session is ended as soon as its queue is full. Changes of a state are kept then, as far as there is room.
    pub(crate) fn is_disconnected_when_full(&self) -> bool {
        self.is_disconnected_when_slow() && self.select.snapshot().is_none()
    }
}
