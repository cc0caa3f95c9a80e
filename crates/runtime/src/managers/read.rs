//! Reads the figures of handlers and contexts off their gauges.

use crate::graph::gauges::{ContextGauges, NodeGauges};
use crate::info::{HandlerContextInfo, HandlerInfo, LoadInfo};
use crate::losses::Losses;
use crate::managers::monitor::Rates;

/// Reads off a handler's figures.
pub(crate) fn read_handler(info: &mut HandlerInfo, gauges: &NodeGauges, rates: Rates) {
    (info.rate_msgs_per_s, info.ns_per_record) = (rates.msgs_in_per_s, rates.ns_per_record);
    info.measured = LoadInfo {
        time_ns_per_s: rates.busy_ns_per_s,
        buffers: gauges.queued.get(),
        bytes_per_s: rates.bytes_out_per_s,
    };
    (info.records_in, info.records_out) = (gauges.records_in.get(), gauges.records_out.get());
    (info.bytes_in, info.bytes_out) = (gauges.bytes_in.get(), gauges.bytes_out.get());
    (info.batches_in, info.busy_ns) = (gauges.batches_in.get(), gauges.busy_ns.get());
    info.batches_shed = gauges.batches_shed.get();
    (info.filtered, info.taken) = (gauges.filtered.get(), gauges.taken.get());
    (info.late, info.forgotten) = (gauges.late.get(), gauges.forgotten.get());
    (info.stage_errors, info.state_bytes) = (gauges.stage_errors.get(), gauges.state_bytes.get());
    (info.row_errors, info.dropped) = (gauges.row_errors.get(), gauges.losses());
    info.row_errors_by = Losses::of_row_errors(&gauges.row_errors_by()).by_words();
    info.first_row_error = gauges.first_row_error().map(str::to_owned);
    info.p99_ns_per_record = gauges.quantile_ns(0.99);
    (info.overruns, info.faults) = (gauges.overruns.get(), gauges.faults.get());
    info.queued = gauges.queued.get();
    info.sampled = gauges.one_in.get().max(1) as u32;
}

/// Reads off a context's figures.
pub(crate) fn read_context(info: &mut HandlerContextInfo, gauges: &ContextGauges, rates: Rates) {
    info.busy_share = rates.busy_ns_per_s as f64 / 1e9;
    (info.queued, info.buffers_in_use) = (gauges.queued.get(), gauges.buffers_in_use.get());
    info.rate_msgs_per_s = rates.msgs_in_per_s;
    (info.bytes_in_per_s, info.bytes_out_per_s) = (rates.bytes_in_per_s, rates.bytes_out_per_s);
    info.network_bytes_per_s = rates.network_bytes_per_s;
    (info.busy_ns, info.handler_ns) = (gauges.busy_ns.get(), gauges.handler_ns.get());
    (info.batches_in, info.batches_delayed) = (gauges.batches.get(), gauges.delayed.get());
    info.records_in = gauges.records_in.get();
    (info.bytes_in, info.bytes_out) = (gauges.bytes_in.get(), gauges.bytes_out.get());
    info.network_bytes = gauges.network_bytes.get();
    (info.batch_latency, info.batch_wait) = (gauges.batch_latency.info(), gauges.batch_wait.info());
    (info.turns, info.sleeps, info.replaced) = (gauges.turns.get(), gauges.sleeps.get(), gauges.replaced.get());
    info.panics = gauges.panics.get();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::gauges::{Gauge, Loss};

    /// A gauge, and the field that reports it.
    type Cell<'g, T> = (&'g Gauge, fn(&T) -> u64);

    #[test]
    fn every_gauge_of_a_handler_is_reported_in_its_own_field() {
        let gauges = NodeGauges::default();
        let cells: [Cell<'_, HandlerInfo>; 17] = [
            (&gauges.records_in, |info| info.records_in),
            (&gauges.records_out, |info| info.records_out),
            (&gauges.batches_in, |info| info.batches_in),
            (&gauges.bytes_in, |info| info.bytes_in),
            (&gauges.bytes_out, |info| info.bytes_out),
            (&gauges.row_errors, |info| info.row_errors),
            (&gauges.busy_ns, |info| info.busy_ns),
            (&gauges.overruns, |info| info.overruns),
            (&gauges.faults, |info| info.faults),
            (&gauges.batches_shed, |info| info.batches_shed),
            (&gauges.filtered, |info| info.filtered),
            (&gauges.taken, |info| info.taken),
            (&gauges.late, |info| info.late),
            (&gauges.forgotten, |info| info.forgotten),
            (&gauges.stage_errors, |info| info.stage_errors),
            (&gauges.state_bytes, |info| info.state_bytes),
            (&gauges.queued, |info| info.queued),
        ];
        (1..).zip(cells).for_each(|(number, (cell, _))| cell.set(number));
        gauges.lose(Loss::Sampled, 77);
        let mut info = HandlerInfo::default();
        let rates = Rates { msgs_in_per_s: 101, busy_ns_per_s: 102, bytes_out_per_s: 103, ..Rates::default() };
        read_handler(&mut info, &gauges, rates);
        (1..).zip(cells).for_each(|(number, (_, field))| assert_eq!(field(&info), number));
        assert_eq!((info.rate_msgs_per_s, info.dropped), (101, vec![("sampled".to_owned(), 77)]));
        assert_eq!(info.measured, LoadInfo { time_ns_per_s: 102, buffers: 17, bytes_per_s: 103 });
    }

    #[test]
    fn every_gauge_of_a_context_is_reported_in_its_own_field() {
        let gauges = ContextGauges::default();
        let cells: [Cell<'_, HandlerContextInfo>; 14] = [
            (&gauges.turns, |info| info.turns),
            (&gauges.sleeps, |info| info.sleeps),
            (&gauges.busy_ns, |info| info.busy_ns),
            (&gauges.handler_ns, |info| info.handler_ns),
            (&gauges.batches, |info| info.batches_in),
            (&gauges.delayed, |info| info.batches_delayed),
            (&gauges.records_in, |info| info.records_in),
            (&gauges.bytes_in, |info| info.bytes_in),
            (&gauges.bytes_out, |info| info.bytes_out),
            (&gauges.network_bytes, |info| info.network_bytes),
            (&gauges.queued, |info| info.queued),
            (&gauges.buffers_in_use, |info| info.buffers_in_use),
            (&gauges.replaced, |info| info.replaced),
            (&gauges.panics, |info| info.panics),
        ];
        (1..).zip(cells).for_each(|(number, (cell, _))| cell.set(number));
        gauges.batch_latency.note(5000, 2);
        gauges.batch_wait.note(3000, 1);
        let mut info = HandlerContextInfo::default();
        let rates = Rates { bytes_in_per_s: 101, bytes_out_per_s: 102, network_bytes_per_s: 103, ..Rates::default() };
        read_context(&mut info, &gauges, rates);
        (1..).zip(cells).for_each(|(number, (_, field))| assert_eq!(field(&info), number));
        assert_eq!((info.bytes_in_per_s, info.bytes_out_per_s, info.network_bytes_per_s), (101, 102, 103));
        assert_eq!((info.batch_latency.sum_ns, info.batch_wait.sum_ns), (10_000, 3000));
    }
}
