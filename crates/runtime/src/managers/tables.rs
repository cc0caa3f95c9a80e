//! Reference tables at work: handlers that look rows up in a table are given its newer rows, as a small order between two batches.

use crate::managers::Managers;
use crossdock_engine::TableOrder;

/// The rows that a handler has, by the version of all tables, and its instances that have them.
pub(crate) type GivenTables = (u64, (u32, usize));

impl Managers {
    /// Gives the handlers that look rows up the rows that tables have now, also those that have begun anew or for another format meanwhile.
    pub(super) fn order_tables(&mut self) {
        let (tables, mut given) = (self.compiler.natives.tables().clone(), Vec::new());
        let version = tables.version();
        for (name, there) in self.handlers.iter().filter(|(_, there)| !there.tables.is_empty()) {
            let wanted: GivenTables = (version, (there.version, there.entries.len()));
            // The instances of one that changes may be others once it has changed.
            if there.given_tables == Some(wanted) || self.overlay.is_changing(there.node) {
                continue;
            }
            let fitting = there.entries.iter().filter(|entry| entry.output.is_some());
            let places: Vec<_> = fitting.map(|entry| entry.place(&there.reads)).collect();
            let orders = there.tables.iter().filter_map(|table| tables.get(table)).map(TableOrder::of);
            let values = orders.flat_map(|order| {
                let order = move |place: &_| (*place, order.clone().into_values());
                places.iter().map(order).collect::<Vec<_>>()
            });
            given.push((name.clone(), there.node, values.collect(), wanted));
        }
        for (name, node, values, wanted) in given {
            // If there is no place for it now, it is given later.
            if self.order(|overlay| overlay.set_parameters(node, values)).is_ok()
                && let Some(there) = self.handlers.get_mut(&name)
            {
                there.given_tables = Some(wanted);
            }
        }
    }
}
