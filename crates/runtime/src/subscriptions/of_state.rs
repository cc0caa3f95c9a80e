//! A query with `SNAPSHOT`, planned for the rows of the state of its stream.

use super::{Entry, Planned, instance_of};
use crossdock_control::load::Cost;
use crossdock_engine::SnapshotHandler;
use crossdock_format::Format;
use crossdock_query::{Program, Select};

impl Planned {
    /// Plans a query with `SNAPSHOT` for the format of the rows of its stream's state.
    pub(super) fn of_state(
        select: &Select,
        format: &Format,
        measure: impl FnOnce(&Program) -> Option<Cost>,
    ) -> Planned {
        let (mut entry, mut instance, mut cost) = (Entry::new(format), instance_of(format, None), None);
        let outcome = select.plan_snapshot(format).map(|program| {
            let output = program.output().clone();
            cost = measure(program.source());
            entry.note(program.source(), &[]);
            // Changes of rows for which the condition does not hold are left out, whether it has one or not.
            entry.filters = true;
            entry.output_format = Some(output.clone());
            instance.output = output.id().0;
            instance.handler = Some(Box::new(SnapshotHandler::new(program)));
            output
        });
        Planned { entry, instance, reducer: None, outcome, cost }
    }
}
